package strictyaml

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"podd/internal/bytesize"
)

// Bounds limit one document.
type Bounds struct {
	// Bytes is the largest text.
	Bytes int
	// Marks bounds what the YAML parser may make of a text, before it runs: it builds
	// one or two nodes, of some 200 bytes each, for each mark (see marksOf). A line of
	// "name: value" has two.
	Marks int
	// Nodes bounds the nodes with aliases expanded, and Text the bytes of their scalars.
	Nodes, Text int
	// Depth bounds nesting.
	Depth int
}

// Bound is one of the Bounds, or what an alias does.
type Bound int

// The bounds that a document can exceed.
const (
	BoundBytes Bound = iota
	BoundMarks
	BoundNodes
	BoundDepth
	// BoundAliases: the aliases make the document exceed Nodes or Text.
	BoundAliases
	// BoundCycle: an alias refers to the object that contains it.
	BoundCycle
)

// BoundError says that a document exceeds a bound.
type BoundError struct {
	Bound  Bound
	Line   int
	Size   int    // of the text, for BoundBytes
	Alias  string // for BoundCycle
	Bounds Bounds
}

func (e *BoundError) Error() string {
	switch e.Bound {
	case BoundBytes:
		return fmt.Sprintf("the document is %s, more than the limit of %d MiB", bytesize.Mebibytes(int64(e.Size)), e.Bounds.Bytes>>20)
	case BoundMarks:
		return fmt.Sprintf("the document has more than %d lines, fields and list entries", e.Bounds.Marks)
	case BoundNodes:
		return fmt.Sprintf("the document has more than %d values", e.Bounds.Nodes)
	case BoundDepth:
		return fmt.Sprintf("the document is nested more than %d levels deep", e.Bounds.Depth)
	case BoundAliases:
		return fmt.Sprintf("the aliases (*name) of this document expand to more than %d values or %d MiB", e.Bounds.Nodes, e.Bounds.Text>>20)
	}
	return "the alias *" + e.Alias + " refers to the object that contains it"
}

// marksOf counts the positions in a YAML text where a node can begin: each node but
// the first follows a line break, a bracket, a comma, a colon, a dash or a question
// mark. It does not recognise quoted and block scalars, and so counts too many, never
// too few.
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

// measure determines the size of a document with its aliases expanded, without
// following one twice, and returns an error if it exceeds the bounds or if an alias
// contains itself. Every later walk is bounded by this one.
func measure(root *yaml.Node, b Bounds) error {
	m := measurer{bounds: b, known: map[*yaml.Node]extent{}, open: map[*yaml.Node]bool{}}
	size := m.of(root, 0)
	exceeds := func(bound Bound) error { return &BoundError{Bound: bound, Line: root.Line, Bounds: b} }
	switch {
	case m.bad != nil:
		m.bad.Bounds = b
		return m.bad
	case size.height > b.Depth:
		return exceeds(BoundDepth)
	case m.aliases && (size.nodes > b.Nodes || size.text > b.Text):
		return exceeds(BoundAliases)
	case size.nodes > b.Nodes:
		return exceeds(BoundNodes)
	}
	return nil
}

// extent is the size of a node and everything below it.
type extent struct{ nodes, text, height int }

type measurer struct {
	bounds Bounds
	// known are the extents of nodes that an alias can refer to; open are those that
	// the walk is currently in.
	known   map[*yaml.Node]extent
	open    map[*yaml.Node]bool
	aliases bool
	bad     *BoundError
}

func (m *measurer) of(n *yaml.Node, depth int) extent {
	switch {
	case m.bad != nil:
		return extent{}
	case depth > m.bounds.Depth:
		m.bad = &BoundError{Bound: BoundDepth, Line: n.Line}
		return extent{}
	case n.Kind == yaml.AliasNode:
		m.aliases = true
		if m.open[n.Alias] {
			m.bad = &BoundError{Bound: BoundCycle, Line: n.Line, Alias: n.Value}
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
		// A sum that exceeds a bound only has to stay above it.
		e.nodes = min(e.nodes+below.nodes, 2*m.bounds.Nodes)
		e.text = min(e.text+below.text, 2*m.bounds.Text)
		e.height = max(e.height, below.height+1)
	}
	if n.Anchor != "" {
		delete(m.open, n)
		m.known[n] = e
	}
	return e
}
