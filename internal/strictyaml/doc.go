// Package strictyaml reads YAML, and JSON, as strictly as an apiserver does, and says
// where in the text each error is.
//
//	text ─► Parse     ─► yaml.Node ─► Decode ─► JSON ─► sigs.k8s.io/json ─► Go value
//	        ParseJSON    (one tree)   (checks)
//
// The tree of go.yaml.in/yaml/v3 is the one parse: it has the lines, the aliases, and
// the content that UIDs are hashed from (ADR 0003). Parse and ParseJSON bound it. Decode
// checks the tree against the Go type, reports every error with its path and node, and
// writes JSON meanwhile; only sigs.k8s.io/json, the apiserver's decoder, fills values.
// Decode does not repeat that decoder until no error is left, as it stops at the first
// error and its errors have no position.
//
// A scalar means what sigs.k8s.io/yaml makes of it (LiteralOf): YAML 1.1.
//
// Promises: all functions are pure and safe for concurrent use, do not panic whatever
// the text, and cost time linear in the size of the tree with its aliases expanded,
// which Bounds limits. Errors have nodes and not words: their user phrases them, and
// decides which values may be shown.
package strictyaml
