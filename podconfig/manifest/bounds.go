package manifest

import "podd/internal/strictyaml"

// What a manifest may cost. A file of 10 MiB can expand to far more than that: three
// bytes ({},) are a container of a kilobyte, and an alias is as large as what it
// refers to. Each bound is far above what people write and keeps one input below 300
// MiB and some seconds (cmd/podd, TestNoInputCostsMoreThan300MiB).
const (
	// MaxBytes is the largest manifest, in bytes: upstream's kubelet's limit for
	// files and URLs (pkg/kubelet/config, maxConfigLength).
	MaxBytes = 10 << 20
	// MaxPods bounds the pods of a manifest, and of a source. The kubelet's maxPods
	// is 110 unless configured, and no node is known to run with a thousand: a file
	// that describes more is not a set of pods for one machine. Pods that are
	// rejected because of maxPods have a status that says so, which this bound leaves
	// room for.
	MaxPods = 2000
	// MaxObjects is the same for ConfigMaps, Secrets and other objects together.
	MaxObjects = 2000
	// MaxObjectBytes bounds their values together, of a source, in bytes: a hundred
	// and twenty-eight as large as an apiserver takes one. podd has them in memory.
	MaxObjectBytes = 128 << 20
	// maxDocuments bounds the documents of a manifest, whatever they are.
	maxDocuments = 10_000
	// maxDocument bounds the text of one document, in bytes. An apiserver accepts no
	// request above 3 MiB, so no Pod is larger.
	maxDocument = 3 << 20
	// maxMarks bounds what the YAML parser may make of a document's text, before it
	// runs: it builds one or two nodes, of some 200 bytes each, for each mark (see
	// marksOf). A line of "name: value" has two.
	maxMarks = 300_000
	// maxNodes bounds the nodes of a document with its aliases expanded, and maxText
	// the bytes of their scalars. A large Pod has a few thousand.
	maxNodes = 250_000
	maxText  = 16 << 20
	// maxDepth bounds nesting; a Pod needs about 15.
	maxDepth = 1000
	// maxPodValues and maxValues bound the memory, in bytes, of the decoded form of
	// one pod or object, and of all of a manifest. A pod with two containers and
	// twenty variables takes some 10 KiB; the values of an object may take 1 MiB.
	maxPodValues = 8 << 20
	maxValues    = 64 << 20
	// maxProblems bounds the problems reported for one manifest, and for one pod.
	maxProblems = 20
	// maxField bounds the path of a field in a problem, in characters.
	maxField = 300
)

// limits are those of one document.
var limits = strictyaml.Bounds{Bytes: maxDocument, Marks: maxMarks, Nodes: maxNodes, Text: maxText, Depth: maxDepth}
