package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ByteOrderMark may begin a file, and be in the middle of files that were appended to
// each other.
const ByteOrderMark = "\ufeff"

// JSONError says that a text is not JSON from some offset on.
type JSONError struct {
	Err error
	// At is where the value begins that cannot be parsed; offsets of Err count from it.
	At int
	// Objects is how many values there are before.
	Objects int
}

func (e *JSONError) Error() string { return e.Err.Error() }

// skipped decodes any JSON value and discards it.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// ParseJSON calls each with the nodes of every value of a text in turn, or with the
// *BoundError of one, until that returns false. It returns a *JSONError about what is
// not JSON. A comment (#) may end the text.
func ParseJSON(text []byte, b Bounds, each func(*yaml.Node, error) bool) error {
	lines := jsonLines{text: text}
	for at, objects := 0, 0; ; objects++ {
		at = len(text) - len(TrimJSON(text[at:]))
		if at == len(text) || objects > 0 && text[at] == '#' && !HasContent(text[at:]) {
			return nil
		}
		dec := json.NewDecoder(bytes.NewReader(text[at:]))
		if err := dec.Decode(&skipped{}); err != nil {
			if s, ok := errors.AsType[*json.SyntaxError](err); ok && strings.Contains(err.Error(), "exceeded max depth") {
				each(nil, b.exceeded(BoundDepth, lines.of(at+int(s.Offset)-1), 0))
				return nil
			}
			return &JSONError{Err: err, At: at, Objects: objects}
		}
		end := at + int(dec.InputOffset())
		n, err := parseObject(text[at:end], at, &lines, b)
		if _, bound := errors.AsType[*BoundError](err); err != nil && !bound {
			return &JSONError{Err: err, At: at, Objects: objects}
		}
		if !each(n, err) {
			return nil
		}
		at = end
	}
}

// parseObject parses one value of a text, beginning at that offset.
func parseObject(text []byte, at int, lines *jsonLines, b Bounds) (*yaml.Node, error) {
	first := lines.of(at)
	if len(text) > b.Bytes {
		return nil, b.exceeded(BoundBytes, first, len(text))
	}
	p := &jsonParser{dec: json.NewDecoder(bytes.NewReader(text)), lines: lines, start: at, first: first, bounds: b}
	p.dec.UseNumber()
	return p.value(0)
}

// TrimJSON cuts what may be between two values: white space and byte order marks.
func TrimJSON(text []byte) []byte {
	for {
		rest := bytes.TrimPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(ByteOrderMark))
		if len(rest) == len(text) {
			return text
		}
		text = rest
	}
}

// jsonLines finds the lines of ascending offsets.
type jsonLines struct {
	text []byte
	at   int
	n    int
}

func (l *jsonLines) of(offset int) int {
	offset = max(l.at, min(offset, len(l.text)))
	l.n += bytes.Count(l.text[l.at:offset], []byte("\n"))
	l.at = offset
	return 1 + l.n
}

// jsonParser makes the same nodes of JSON as the YAML parser makes of YAML. The YAML
// parser accepts most of JSON, but not its surrogate pairs, and its errors are in
// terms of YAML.
type jsonParser struct {
	dec   *json.Decoder
	lines *jsonLines
	// start is where the decoder's text begins, and first its line.
	start, first int
	bounds       Bounds
	nodes        int
}

// line is the decoder's current line.
func (p *jsonParser) line() int { return p.lines.of(p.start + int(p.dec.InputOffset())) }

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	t, err := p.dec.Token()
	switch p.nodes++; {
	case err != nil:
		return nil, err
	case depth > p.bounds.Depth:
		return nil, p.bounds.exceeded(BoundDepth, p.line(), 0)
	case p.nodes > p.bounds.Nodes:
		return nil, p.bounds.exceeded(BoundNodes, p.first, 0)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line()}
	switch t := t.(type) {
	case json.Delim:
		if err := p.collection(n, t, depth); err != nil {
			return nil, err
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case json.Number:
		n.Tag, n.Value, n.Style = "!!float", t.String(), jsonNumber
		if _, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	}
	return n, nil
}

// collection parses what follows an opening bracket. A name is a value, too; the decoder
// lets nothing but a string be one.
func (p *jsonParser) collection(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for p.dec.More() {
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, v)
	}
	_, err := p.dec.Token() // the closing bracket
	return err
}
