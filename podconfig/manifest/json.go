package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds nesting; a Pod needs about 15.
const maxDepth = 1000

// jsonParser makes the same nodes of JSON as the YAML parser makes of YAML. The
// YAML parser reads most of JSON, but not its surrogate pairs, and its words
// for an error are not those of a person who writes JSON.
type jsonParser struct {
	dec  *json.Decoder
	text []byte
	// line is that of offset at, counted so far.
	line int
	at   int64
}

func parseJSON(text []byte) ([]*yaml.Node, *fault) {
	p := &jsonParser{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1}
	p.dec.UseNumber()
	var out []*yaml.Node
	for {
		n, err := p.value(0)
		if errors.Is(err, io.EOF) && len(out) > 0 {
			return out, nil
		}
		if err != nil {
			return nil, p.explain(err)
		}
		out = append(out, n)
	}
}

func (p *jsonParser) explain(err error) *fault {
	f := &fault{message: "this is not valid JSON: " + err.Error()}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		f.line = 1 + bytes.Count(p.text[:min(s.Offset, int64(len(p.text)))], []byte("\n"))
	} else {
		f.line = p.here()
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.line = 1 + bytes.Count(bytes.TrimRight(p.text, "\r\n"), []byte("\n"))
		f.message = "this is not valid JSON: it ends in the middle"
		f.hint = "is the file complete? Each { and [ needs its } and ]"
	case errors.Is(err, errNested):
		f.hint = "a Pod needs about 15 levels; is this the right file?"
	case strings.Contains(err.Error(), "in string literal"):
		f.hint = "a quote is not closed on this line; is the file complete?"
	default:
		f.hint = "look for a missing comma, quote or bracket here or on the line before"
	}
	return f
}

// here is the line at which the decoder stands.
func (p *jsonParser) here() int {
	off := min(p.dec.InputOffset(), int64(len(p.text)))
	p.line += bytes.Count(p.text[p.at:off], []byte("\n"))
	p.at = off
	return p.line
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	t, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errNested
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.here()}
	switch t := t.(type) {
	case json.Delim:
		return n, p.collection(n, t, depth)
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case json.Number:
		n.Tag, n.Value = "!!float", t.String()
		if _, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

func (p *jsonParser) collection(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for p.dec.More() {
		if open == '{' {
			key, err := p.dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string) // the decoder lets nothing else stand there
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str",
				Style: yaml.DoubleQuotedStyle, Value: name, Line: p.here()})
		}
		v, err := p.value(depth + 1)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		n.Content = append(n.Content, v)
	}
	if _, err := p.dec.Token(); err != nil { // the closing bracket
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
