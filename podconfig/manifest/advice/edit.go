package advice

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
)

// Edit is a change of one line of a text. The hint of a fault is worded from it, so that
// following the hint is what the tests do with the edit.
type Edit struct {
	// line is that within the chunk, and column that from which old is searched, in bytes;
	// both are from 1, and column is 0 for a line as a whole.
	Line, Column int
	Old, New     string
	// words are the hint, with %s for new.
	words string
}

func (e *Edit) hint() string {
	return strings.ReplaceAll(e.words, "%s", Shorten(strings.TrimSpace(e.New)))
}

// by is the fault with a hint that is worded from an edit.
func (f Fault) by(e Edit) Fault {
	f.Edit, f.Hint = &e, e.hint()
	return f
}

// Below is the edit of a text that has the chunk behind so many lines.
func (e *Edit) Below(lines int) *Edit {
	if e == nil {
		return nil
	}
	moved := *e
	moved.Line += lines
	return &moved
}

// at is the edit at the place of a node.
func (e Edit) at(n *yaml.Node) Edit {
	e.Line, e.Column = n.Line, n.Column
	return e
}

// replace is an edit of a scalar; quotes around it stay.
func replace(n *yaml.Node, with, words string) Edit {
	return Edit{Old: n.Value, New: with, words: words}.at(n)
}

// replaceBare is replace with the quotes.
func replaceBare(n *yaml.Node, with, words string) Edit {
	e := replace(n, with, words)
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		e.Old = `"` + e.Old + `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		e.Old = "'" + e.Old + "'"
	}
	return e
}

// meant is the value that a hint proposes for a field, and the words for it.
type meant struct {
	value, words string
	// of makes the value of what is written, where that decides ("" for no proposal); or
	// it is nil.
	of func(written string) string
	// bare: the value is written without the quotes that there may be.
	bare bool
}

// edit is the edit of a scalar that makes it what was meant.
func (m meant) edit(n *yaml.Node) Edit {
	if m.of != nil {
		m.value = m.of(n.Value)
	}
	if m.bare {
		return replaceBare(n, m.value, m.words)
	}
	return replace(n, m.value, m.words)
}

// didYouMean asks whether a name was meant; the zero meant for none.
func didYouMean(name string) meant {
	if name == "" {
		return meant{}
	}
	return meant{value: name, words: `did you mean "%s"?`}
}

// instead is the fault with a hint that proposes another value for the scalar at a path.
func (f Fault) instead(m meant, root *yaml.Node, path string) Fault {
	if m.words == "" {
		return f
	}
	_, n := strictyaml.At(root, path)
	return f.proposing(m, n)
}

// renamed is the fault with a hint that proposes another name for the field at a path.
func (f Fault) renamed(m meant, root *yaml.Node, path string) Fault {
	if m.words == "" {
		return f
	}
	key, _ := strictyaml.At(root, path)
	return f.proposing(m, key)
}

// proposing is the fault with a hint that proposes another text for a node, which may be
// nil.
func (f Fault) proposing(m meant, n *yaml.Node) Fault {
	if n == nil || n.Kind != yaml.ScalarNode {
		f.Hint = (&Edit{New: m.value, words: m.words}).hint()
	} else if e := m.edit(n); e.New != "" {
		return f.by(e)
	}
	return f
}

// beside is an edit that writes a field before another one of the same object, on its
// line in brackets and above it otherwise.
func beside(object, key *yaml.Node, field, words string) Edit {
	between := ", "
	if object.Style&yaml.FlowStyle == 0 {
		between = "\n" + strings.Repeat(" ", max(key.Column-1, 0))
	}
	return Edit{Old: key.Value, New: field + between + key.Value, words: strings.ReplaceAll(words, "%s", Shorten(field))}.at(key)
}
