package manifest

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// What a manifest may cost. A file of 10 MiB can spell out far more than that:
// three bytes ({},) are a container of a kilobyte, and an alias is as large as
// what it names. Each bound is far above what people write and keeps one input
// below 300 MiB and some seconds (cmd/podd, TestNoInputCostsMoreThan300MiB).
const (
	// MaxBytes is the largest manifest, in bytes: upstream's kubelet's limit for
	// files and URLs (pkg/kubelet/config, maxConfigLength).
	MaxBytes = 10 << 20
	// MaxPods bounds the pods of a manifest, and of a source. The kubelet's
	// maxPods is 110 unless configured, and no node is known to be run with a
	// thousand: what describes more is no set of pods for one machine. Pods that
	// maxPods refuses have a status that says so, which this bound leaves room for.
	MaxPods = 2000
	// MaxObjects is the same for ConfigMaps, Secrets and other objects together.
	MaxObjects = 2000
	// maxDocuments bounds the documents of a manifest, whatever they are.
	maxDocuments = 10_000
	// maxDocument bounds the text of one document, in bytes. An apiserver takes no
	// request above 3 MiB, so no Pod is larger.
	maxDocument = 3 << 20
	// maxMarks bounds what the YAML parser may make of a document's text, before it
	// is let loose on it: it builds one or two nodes, of some 200 bytes each, for
	// each mark (see marksOf). A line of "name: value" has two.
	maxMarks = 300_000
	// maxNodes bounds the nodes of a document with its aliases followed, and
	// maxText the bytes of their texts. A generous Pod has a few thousand.
	maxNodes = 250_000
	maxText  = 16 << 20
	// maxDepth bounds nesting; a Pod needs about 15.
	maxDepth = 1000
	// maxPodValues and maxValues bound the memory, in bytes, of the decoded form of
	// one pod or object and of all of a manifest. A pod with two containers and
	// twenty variables has some 10 KiB; the values of an object may have 1 MiB.
	maxPodValues = 8 << 20
	maxValues    = 64 << 20
	// maxProblems bounds what one manifest has to say, and how many faults of one
	// pod are looked for.
	maxProblems = 20
	// maxField bounds the path of a field in a problem, in characters.
	maxField = 300
)

const rightFile = "is this the right file?"

// marksOf counts the places of a YAML text where a node can begin: each node but
// the first stands behind a line's end, a bracket, a comma, a colon, a dash or a
// question mark. It takes quotes and block texts for structure, too, and so
// counts too many, never too few.
func marksOf(text []byte) int {
	n, flow := 0, false
	for i, c := range text {
		switch c {
		case '[', '{':
			flow = true // there are no commas that separate before the first one
			n++
		case ',':
			if flow {
				n++
			}
		case '\n', '\r', '&': // an anchor costs as much as a node
			n++
		case ':', '-', '?':
			if flow && c != '-' || i+1 == len(text) || text[i+1] <= ' ' || text[i+1] >= 0x80 {
				n++
			}
		case 0x85, 0xa8, 0xa9: // the last bytes of the other line ends of YAML 1.1
			n++
		}
	}
	return n
}

// tooManyMarks refuses a document that would become too large a tree.
func tooManyMarks(text []byte) *fault {
	if n := marksOf(text); n > maxMarks {
		return &fault{line: 1, message: fmt.Sprintf("the document has more than %d lines, fields and list entries", maxMarks),
			hint: "a Pod has a few hundred; " + rightFile, bound: true}
	}
	return nil
}

// measure looks at the size of a document with its aliases followed, without
// following them twice, and returns a fault where it is beyond the bounds or
// where an alias holds itself. Every later walk is bounded by this one.
func measure(root *yaml.Node) *fault {
	m := measurer{known: map[*yaml.Node]extent{}, open: map[*yaml.Node]bool{}}
	size := m.of(root, 0)
	switch {
	case m.bad != nil:
		return m.bad
	case size.height > maxDepth:
		return tooDeep(root.Line)
	case m.aliases && (size.nodes > maxNodes || size.text > maxText):
		return &fault{line: root.Line, message: fmt.Sprintf("the aliases (*name) of this document expand to more than %d values or 16 MiB", maxNodes),
			hint: "this looks like an alias bomb; write the values out"}
	case size.nodes > maxNodes:
		return tooMany(root.Line)
	}
	return nil
}

func tooMany(line int) *fault {
	return &fault{line: line, message: fmt.Sprintf("the document has more than %d values", maxNodes),
		hint: "a Pod has a few hundred; " + rightFile}
}

func tooDeep(line int) *fault {
	return &fault{line: line, message: fmt.Sprintf("the document is nested more than %d levels deep", maxDepth),
		hint: "a Pod needs about 15; " + rightFile}
}

// extent is the size of a node and all below it.
type extent struct{ nodes, text, height int }

type measurer struct {
	// known are the extents of nodes that an alias can name, open those of them
	// that the walk is within.
	known   map[*yaml.Node]extent
	open    map[*yaml.Node]bool
	aliases bool
	bad     *fault
}

func (m *measurer) of(n *yaml.Node, depth int) extent {
	switch {
	case m.bad != nil:
		return extent{}
	case depth > maxDepth:
		m.bad = tooDeep(n.Line)
		return extent{}
	case n.Kind == yaml.AliasNode:
		m.aliases = true
		if m.open[n.Alias] {
			m.bad = &fault{line: n.Line, message: "the alias *" + n.Value + " refers to the object that contains it",
				hint: "write the value out", plain: "an alias refers to the object that contains it", plainHint: "write the value out"}
			return extent{}
		}
		n = n.Alias
	}
	if known, ok := m.known[n]; ok {
		return known
	}
	if n.Anchor != "" {
		m.open[n] = true
	}
	e := extent{nodes: 1, text: len(n.Value)}
	for _, c := range n.Content {
		below := m.of(c, depth+1)
		// Once over a bound a sum only has to stay over it.
		e.nodes = min(e.nodes+below.nodes, 2*maxNodes)
		e.text = min(e.text+below.text, 2*maxText)
		e.height = max(e.height, below.height+1)
	}
	if n.Anchor != "" {
		delete(m.open, n)
		m.known[n] = e
	}
	return e
}
