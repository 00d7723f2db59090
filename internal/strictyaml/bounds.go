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
	Bound   Bound
	Line    int
	Message string
}

func (e *BoundError) Error() string { return e.Message }

// exceeded is the error about a bound; size is that of the text.
func (b Bounds) exceeded(bound Bound, line, size int) *BoundError {
	e := &BoundError{Bound: bound, Line: line}
	switch bound {
	case BoundBytes:
		e.Message = fmt.Sprintf("the document is %s, more than the limit of %d MiB", bytesize.Mebibytes(int64(size)), b.Bytes>>20)
	case BoundMarks:
		e.Message = fmt.Sprintf("the document has more than %d lines, fields and list entries", b.Marks)
	case BoundNodes:
		e.Message = fmt.Sprintf("the document has more than %d values", b.Nodes)
	case BoundDepth:
		e.Message = fmt.Sprintf("the document is nested more than %d levels deep", b.Depth)
	case BoundAliases:
		e.Message = fmt.Sprintf("the aliases (*name) of this document expand to more than %d values or %d MiB", b.Nodes, b.Text>>20)
	}
	return e
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
	size := m.extentOf(root, 0)
	switch {
	case m.bad != nil:
		return m.bad
	case size.height > b.Depth:
		return b.exceeded(BoundDepth, root.Line, 0)
	case m.aliases && (size.nodes > b.Nodes || size.text > b.Text):
		return b.exceeded(BoundAliases, root.Line, 0)
	case size.nodes > b.Nodes:
		return b.exceeded(BoundNodes, root.Line, 0)
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

func (m *measurer) extentOf(n *yaml.Node, depth int) extent {
	switch {
	case m.bad != nil:
		return extent{}
	case depth > m.bounds.Depth:
		m.bad = m.bounds.exceeded(BoundDepth, n.Line, 0)
		return extent{}
	case n.Kind == yaml.AliasNode:
		m.aliases = true
		if m.open[n.Alias] {
			m.bad = &BoundError{BoundCycle, n.Line, "the alias *" + n.Value + " refers to the object that contains it"}
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
		below := m.extentOf(c, depth+1)
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
