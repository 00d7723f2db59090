// Package upstreamnames reads names that operators rely on from Go source: metrics, with types
// and labels, and the reasons of events. Its test compares upstream's with podd's: podd has each
// name, or a table gives the reason why not.
//
// It reads source instead of linking it. The comparison therefore needs no build of the kubelet,
// and also sees what is registered only behind a feature gate or in a cluster. A declaration
// that it cannot evaluate is an error, never left out. test/parity/oracle compares what it reads
// of upstream with upstream's linked registry.
//
// Only tests use it. Nothing in podd's binary imports it.
package upstreamnames
