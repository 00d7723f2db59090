package advice

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
)

// Edit is a change of one line of a text. The hint of a fault is worded from it, so that
// following the hint is what the tests do with the edit.
type Edit struct {
	// Line is that within the chunk, and Column that from which Old is searched, in bytes;
	// both are from 1, and Column is 0 for a line as a whole.
	Line, Column int
	Old, New     string
	// hintFormat is the hint, with %s for New.
	hintFormat string
}

func (e *Edit) hint() string {
	return strings.ReplaceAll(e.hintFormat, "%s", Shorten(strings.TrimSpace(e.New)))
}

// withEdit is the fault with a hint that is worded from an edit.
func (f Fault) withEdit(e Edit) Fault {
	f.Edit, f.Hint = &e, e.hint()
	return f
}

// Shifted is the edit of a text that has the chunk behind so many lines.
func (e *Edit) Shifted(lines int) *Edit {
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
	return Edit{Old: n.Value, New: with, hintFormat: words}.at(n)
}

// replaceQuoted is replace with the quotes.
func replaceQuoted(n *yaml.Node, with, words string) Edit {
	e := replace(n, with, words)
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		e.Old = `"` + e.Old + `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		e.Old = "'" + e.Old + "'"
	}
	return e
}

// suggestion is the value that a hint proposes for a field, and the words for it.
type suggestion struct {
	value, format string
	// compute makes the value of what is written, where that decides ("" for no proposal); or
	// it is nil.
	compute func(written string) string
	// unquoted: the value is written without the quotes that there may be.
	unquoted bool
}

// edit is the edit of a scalar that makes it what was meant.
func (m suggestion) edit(n *yaml.Node) Edit {
	if m.compute != nil {
		m.value = m.compute(n.Value)
	}
	if m.unquoted {
		return replaceQuoted(n, m.value, m.format)
	}
	return replace(n, m.value, m.format)
}

// didYouMean asks whether a name was meant; the zero suggestion for none.
func didYouMean(name string) suggestion {
	if name == "" {
		return suggestion{}
	}
	return suggestion{value: name, format: `did you mean "%s"?`}
}

// withValue is the fault with a hint that proposes another value for the scalar at a path.
func (f Fault) withValue(m suggestion, root *yaml.Node, path string) Fault {
	if m.format == "" {
		return f
	}
	_, n := strictyaml.LookupPath(root, path)
	return f.withSuggestion(m, n)
}

// withNewName is the fault with a hint that proposes another name for the field at a path.
func (f Fault) withNewName(m suggestion, root *yaml.Node, path string) Fault {
	if m.format == "" {
		return f
	}
	key, _ := strictyaml.LookupPath(root, path)
	return f.withSuggestion(m, key)
}

// withSuggestion is the fault with a hint that proposes another text for a node, which may be
// nil.
func (f Fault) withSuggestion(m suggestion, n *yaml.Node) Fault {
	if n == nil || n.Kind != yaml.ScalarNode {
		f.Hint = (&Edit{New: m.value, hintFormat: m.format}).hint()
	} else if e := m.edit(n); e.New != "" {
		return f.withEdit(e)
	}
	return f
}

// insertBefore is an edit that writes a field before another one of the same object, on its
// line in brackets and above it otherwise.
func insertBefore(object, key *yaml.Node, field, words string) Edit {
	between := ", "
	if object.Style&yaml.FlowStyle == 0 {
		between = "\n" + strings.Repeat(" ", max(key.Column-1, 0))
	}
	return Edit{Old: key.Value, New: field + between + key.Value, hintFormat: strings.ReplaceAll(words, "%s", Shorten(field))}.at(key)
}
