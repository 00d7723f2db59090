// Package deptest guards what podd links and which of its packages know each
// other. Every ban and every allowed arrow has a row with a reason; the tests
// compare the rows with what go list says. It guards two habits as well: few
// parameters, and no context in a struct. It is used by tests only.
package deptest
