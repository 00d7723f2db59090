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

// skipped decodes any JSON value and discards it.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// parseJSON calls each with every value of a text in turn, or with its fault, until
// that returns false, and returns how many there were before the fault that ends the
// text, if there is one.
func parseJSON(text []byte, each func(*yaml.Node, *fault) bool) (objects int, bad *fault) {
	lines := jsonLines{text: text}
	for at := 0; ; objects++ {
		at += len(text[at:]) - len(trimJSON(text[at:]))
		if at == len(text) || objects > 0 && text[at] == '#' && !hasContent(text[at:]) {
			return objects, nil
		}
		dec := json.NewDecoder(bytes.NewReader(text[at:]))
		if err := dec.Decode(&skipped{}); err != nil {
			return objects, explainJSON(err, text, at, objects)
		}
		end := at + int(dec.InputOffset())
		switch n, bad, err := parseObject(text[at:end], at, &lines); {
		case err != nil:
			return objects, explainJSON(err, text, at, objects)
		case !each(n, bad):
			return objects, nil
		}
		at = end
	}
}

// parseObject parses one value of a text, beginning at that offset; the fault says
// that it exceeds the bounds.
func parseObject(text []byte, at int, lines *jsonLines) (*yaml.Node, *fault, error) {
	first := lines.of(at)
	if len(text) > maxDocument {
		bad := tooLong(len(text))
		bad.line = first
		return nil, bad, nil
	}
	p := &jsonParser{dec: json.NewDecoder(bytes.NewReader(text)), lines: lines, start: at}
	p.dec.UseNumber()
	n, err := p.value(0)
	switch {
	case errors.Is(err, errNested):
		return nil, tooDeep(p.line()), nil
	case errors.Is(err, errMany):
		return nil, tooMany(first), nil
	}
	return n, nil, err
}

// trimJSON cuts what may be between two values: white space, and the byte order mark
// of a file that was appended to another.
func trimJSON(text []byte) []byte {
	for {
		rest := bytes.TrimPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(byteOrderMark))
		if len(rest) == len(text) {
			return text
		}
		text = rest
	}
}

// explainJSON converts a syntax error after the offset at into a message.
func explainJSON(err error, text []byte, at, objects int) *fault {
	lineAt := func(offset int) int { return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n")) }
	f := &fault{syntax: true, line: lineAt(at), message: "this is not valid JSON: " + err.Error(), plain: "this is not valid JSON"}
	s, syntax := errors.AsType[*json.SyntaxError](err)
	if syntax {
		f.line = lineAt(at + int(s.Offset) - 1)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.line = lineAt(len(bytes.TrimRight(text, "\r\n")))
		f.message = "this is not valid JSON: it is cut off at the end"
		f.hint = "is the file complete? Each { and [ needs its } and ]"
	case strings.Contains(err.Error(), "exceeded max depth"):
		return tooDeep(f.line)
	case strings.Contains(err.Error(), "in string literal"):
		f.hint = "a quote is not closed on this line; is the file complete?"
	case objects > 0 && syntax && s.Offset <= 1:
		f.message = "the JSON object ends before this line, and what follows is not another one: " + err.Error()
		f.hint = "is a bracket closed too early? Remove what does not belong to the file"
	default:
		f.hint = "look for a missing comma, quote or bracket here or on the line before"
	}
	f.plainHint = f.hint
	return f
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
	// start is where the decoder's text begins.
	start int
	nodes int
}

var (
	errNested = errors.New("nested too deeply")
	errMany   = errors.New("too many values")
)

// line is the decoder's current line.
func (p *jsonParser) line() int { return p.lines.of(p.start + int(p.dec.InputOffset())) }

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	t, err := p.dec.Token()
	switch p.nodes++; {
	case err != nil:
		return nil, err
	case depth > maxDepth:
		return nil, errNested
	case p.nodes > maxNodes:
		return nil, errMany
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line()}
	switch t := t.(type) {
	case json.Delim:
		return n, p.collection(n, t, depth)
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case json.Number:
		n.Tag, n.Value, n.Style = "!!float", t.String(), jsonNumber
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
			p.nodes++
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str",
				Style: yaml.DoubleQuotedStyle, Value: name, Line: p.line()})
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, v)
	}
	_, err := p.dec.Token() // the closing bracket
	return err
}
