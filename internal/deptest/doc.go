// Package deptest guards what podd links and which of its packages know each other. Every
// ban and every allowed arrow has a row with a reason; the tests compare the rows with the
// output of go list. It also guards two habits: few parameters, and no context in a struct.
// Only tests use it.
package deptest
