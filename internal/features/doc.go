// Package features has the feature gates of the Kubernetes release that podd speaks: their
// names, stages and defaults (gates.txt), and what a configuration makes of them. It is pure.
// The configuration makes a Set at start; whoever depends on a gate is given the Set, or the
// answer.
//
// gates.txt is upstream's own registry, written by go test ./internal/podapi -update. A test
// there compares them, and compares the verdicts of New with upstream's.
package features
