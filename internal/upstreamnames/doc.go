// Package upstreamnames reads, from Go source, the names that operators know a kubelet by: its
// metrics, with types and labels, and the reasons of its events. Its test holds upstream's
// against podd's: each of upstream's is podd's, too, or has its reason in a table.
//
// It reads source instead of linking it, so the comparison costs no build of the kubelet and
// sees what is registered only behind a feature gate or in a cluster. A declaration that it
// cannot evaluate is an error, never left out. test/parity/oracle holds what it reads of
// upstream against upstream's linked registry.
//
// It is for tests; nothing in podd's binary imports it.
package upstreamnames
