// Package manifest turns the bytes of a manifest into pods that podd can run,
// or into sentences that help the person who wrote it.
//
//	bytes ─► split ─► parse ─► fill ─► default ─► validate ─► rules ─► *pod.Desired
//	         (---)    (nodes)  (strict) └─ internal/podapi ─┘  (static pods)
//
// It owns: the text (BOM, CRLF, several documents, YAML and JSON), strict
// decoding with the line and the path of everything, the order of the checks,
// the rules of a pod without an apiserver, what podd does not honour yet
// (notyet.go), and the identity of a static pod (uid.go). It leaves to others:
// where the bytes come from (podconfig/file, podconfig/http), which of two pods
// of one name runs (podconfig), and what is a valid Pod (internal/podapi).
//
// Promises: Decode is pure; it neither blocks nor reads anything, is safe for
// concurrent use, and does not panic, whatever the input. Its cost is bounded
// by the input's size (aliases are counted before they are followed). One
// broken document never hides a good one.
package manifest
