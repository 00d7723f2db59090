// Package manifest turns the bytes of a manifest into pods that podd can run,
// or into sentences that help the person who wrote it.
//
//	bytes ─► split ─► parse ─► decode ─► default ─► validate ─► rules ─► *pod.Desired
//	         └─ internal/strictyaml ─┘   └─ internal/podapi ─┘  (static pods)
//
// It owns: the order of the checks, strict or as lenient as Validation says, the bounds
// of it all (bounds.go), the rules of a pod without an apiserver, what podd does not
// support yet (unsupported.go), what pods need of other objects (missing.go), and the
// identity of a static pod (uid.go). It leaves to others: where the bytes come from
// (podconfig/file, podconfig/http), how they are parsed and decoded
// (internal/strictyaml), which of two pods of one name runs (podconfig), what is a
// valid Pod (internal/podapi), and what its writer is told (podconfig/manifest/advice).
//
// Promises: Decode is pure; it neither blocks nor reads anything, is safe for
// concurrent use, and does not panic, whatever the input. Its cost is linear in the
// size of the input and bounded: a document that exceeds the bounds is a problem, and
// a manifest that exceeds them as a whole is rejected like one that is too large. One
// broken document never hides a good one, and no part of a text is skipped without a
// problem that says so.
package manifest
