// Package manifest turns the bytes of a manifest into pods that podd can run,
// or into sentences that help the person who wrote it.
//
//	bytes ─► split ─► parse ─► fill ─► default ─► validate ─► rules ─► *pod.Desired
//	         (---)    (nodes)  (strict) └─ internal/podapi ─┘  (static pods)
//
// It owns: the text (byte order marks, line ends, several documents, YAML and
// JSON), decoding with the line and the path of everything, strict or as lenient
// as Validation says, the bounds of it all (bounds.go), the order of the checks,
// the rules of a pod without an apiserver, what podd does not support yet
// (notyet.go), what is valid and surely not meant (warn.go, slips.go), what
// makes a text unreadable (explain.go, leftover.go), and the identity of a static pod (uid.go). It leaves to others:
// where the bytes come from (podconfig/file, podconfig/http), which of two pods
// of one name runs (podconfig), and what is a valid Pod (internal/podapi).
//
// What a scalar means is what Kubernetes makes of it (scalar.go): YAML 1.1,
// turned into JSON.
//
// Promises: Decode is pure; it neither blocks nor reads anything, is safe for
// concurrent use, and does not panic, whatever the input. Its cost grows with the
// input's size and is bounded: a document beyond the bounds is a problem, and a
// manifest that as a whole is beyond them is refused as one that is too large.
// One broken document never hides a good one, and nothing of a text is left
// unread without a problem that says so.
package manifest
