// Package perftest supports tests of performance. On a slow or busy machine everything
// takes longer, so no number of milliseconds tells a regression from a noisy neighbour. A
// test therefore compares its subject with a control: work that takes as long as the
// machine makes it take, measured in the same test, alternating with the subject. It is not
// linked into the program.
package perftest
