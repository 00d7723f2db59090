// Package conformance runs upstream's end-to-end tests of Kubernetes in a cluster and says
// what came of them: how far they are while they run, then which failed, each with its
// first complaint.
//
// The tests are upstream's program, run by ginkgo in several processes. Their own output,
// megabytes of it, is in a file. A list names those that cannot pass, with the reason: one
// that passes nevertheless is told, too, so that the list stays true.
package conformance
