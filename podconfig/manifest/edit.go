package manifest

import (
	"bytes"
	"strings"

	"podd/internal/strictyaml"

	"go.yaml.in/yaml/v3"
)

// edit is a change of one line of a text. The hint of a fault is worded from it, so that
// following the hint is what the tests do with the edit.
type edit struct {
	// line is that within the chunk, and column that from which old is searched, in bytes;
	// both are from 1, and column is 0 for a line as a whole.
	line, column int
	old, new     string
	// words are the hint, with %s for new.
	words string
}

func (e *edit) hint() string {
	return strings.ReplaceAll(e.words, "%s", shorten(strings.TrimSpace(e.new)))
}

// by is the fault with a hint that is worded from an edit.
func (f fault) by(e edit) fault {
	f.edit, f.hint = &e, e.hint()
	return f
}

// below is the edit of a text that has the chunk behind so many lines.
func (e *edit) below(lines int) *edit {
	if e == nil {
		return nil
	}
	moved := *e
	moved.line += lines
	return &moved
}

// apply changes a text; nil if it does not have what the edit is to change.
func (e *edit) apply(text []byte) []byte {
	begin := 0
	for range e.line - 1 {
		i := bytes.IndexByte(text[begin:], '\n')
		if i < 0 {
			return nil
		}
		begin += i + 1
	}
	end := len(text)
	if i := bytes.IndexByte(text[begin:], '\n'); i >= 0 {
		end = begin + i
	}
	from := min(begin+max(e.column-1, 0), end)
	i := bytes.Index(text[from:end], []byte(e.old))
	if i < 0 {
		return nil
	}
	from += i
	var out []byte
	out = append(out, text[:from]...)
	out = append(out, e.new...)
	return append(out, text[from+len(e.old):]...)
}

// at is the edit at the place of a node.
func (e edit) at(n *yaml.Node) edit {
	e.line, e.column = n.Line, n.Column
	return e
}

// replace is an edit of a scalar; quotes around it stay.
func replace(n *yaml.Node, with, words string) edit {
	return edit{old: n.Value, new: with, words: words}.at(n)
}

// replaceBare is replace with the quotes.
func replaceBare(n *yaml.Node, with, words string) edit {
	e := replace(n, with, words)
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		e.old = `"` + e.old + `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		e.old = "'" + e.old + "'"
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
func (m meant) edit(n *yaml.Node) edit {
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
func (f fault) instead(m meant, root *yaml.Node, path string) fault {
	if m.words == "" {
		return f
	}
	_, n := strictyaml.At(root, path)
	if n == nil || n.Kind != yaml.ScalarNode {
		f.hint = (&edit{new: m.value, words: m.words}).hint()
		return f
	}
	if e := m.edit(n); e.new != "" {
		return f.by(e)
	}
	return f
}

// renamed is the fault with a hint that proposes another name for the field at a path.
func (f fault) renamed(m meant, root *yaml.Node, path string) fault {
	if m.words == "" {
		return f
	}
	if key, _ := strictyaml.At(root, path); key != nil {
		return f.by(replace(key, m.value, m.words))
	}
	f.hint = (&edit{new: m.value, words: m.words}).hint()
	return f
}

// beside is an edit that writes a field before another one of the same object, on its
// line in brackets and above it otherwise.
func beside(object, key *yaml.Node, field, words string) edit {
	between := ", "
	if object.Style&yaml.FlowStyle == 0 {
		between = "\n" + strings.Repeat(" ", max(key.Column-1, 0))
	}
	return edit{old: key.Value, new: field + between + key.Value, words: strings.ReplaceAll(words, "%s", shorten(field))}.at(key)
}
