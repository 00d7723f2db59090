package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fault is one thing wrong with a document.
type fault struct {
	// line counts within the chunk, from 1.
	line          int
	field         string
	message, hint string
	// second is another line that the message speaks of; 0 for none.
	second int
}

// parse returns the documents of a chunk: one of YAML, or as many as there are
// JSON objects in a row. Lines of the nodes count within the chunk.
func parse(c chunk) ([]*yaml.Node, *fault) {
	if len(c.text) > maxDocument {
		return nil, &fault{line: 1,
			message: "the document has " + mebibytes(int64(len(c.text))) + ", more than the limit of 3 MiB",
			hint:    "an apiserver takes no larger object either; is this the right file?"}
	}
	text := bytes.TrimPrefix(c.text, []byte("\ufeff"))
	isJSON := bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
	var jsonFault *fault
	if isJSON {
		var nodes []*yaml.Node
		if nodes, jsonFault = parseJSON(text); jsonFault == nil {
			return nodes, nil
		}
	}
	n, err := parseYAML(text)
	if err == nil {
		if n.Kind == 0 {
			return nil, nil
		}
		return []*yaml.Node{n}, nil
	}
	if isJSON {
		return nil, jsonFault
	}
	return nil, explainYAML(err, text)
}

// parseYAML parses one document. The parser is foreign code fed with whatever
// lies in a directory; should it ever panic, that costs this document and not
// every pod of the node.
func parseYAML(text []byte) (n *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = nil, fmt.Errorf("yaml: the parser gave up: %v", r)
		}
	}()
	n = &yaml.Node{}
	if err := yaml.Unmarshal(text, n); err != nil {
		return nil, err
	}
	if n.Kind == yaml.DocumentNode {
		return n.Content[0], nil
	}
	return n, nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// fromParser recognises the errors of the library's parser; the others are its
// scanner's.
var fromParser = regexp.MustCompile(`^did not find expected (key|node content|',' or|'-' indicator|<document start>)`)

// explainYAML puts a syntax error into words with a remedy. The library's line
// is where the surrounding construct began for errors of its parser, and counts
// from 0 there.
func explainYAML(err error, text []byte) *fault {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	f := &fault{line: line, message: "this is not valid YAML: " + m[2]}
	if fromParser.MatchString(m[2]) || f.line == 0 {
		f.line++
	}
	f.line = min(f.line, 1+bytes.Count(bytes.TrimRight(text, "\r\n"), []byte("\n")))
	if tab := tabLine(text); tab > 0 {
		f.line = tab
		f.message = "the line is indented with a tab, which YAML does not allow"
		f.hint = "use spaces (two for each level)"
		return f
	}
	switch {
	case strings.Contains(m[2], "mapping values are not allowed"):
		f.hint = `the line is indented too far, the line before lacks its ":", or a text that holds ": " needs quotes around it`
	case strings.Contains(m[2], "did not find expected key"), strings.Contains(m[2], "did not find expected '-'"):
		f.message = "this is not valid YAML: the indentation breaks within the block that begins here"
		f.hint = "the fields of one object must begin in the same column; lists begin each entry with \"- \""
	case strings.Contains(m[2], "did not find expected ',' or"):
		f.message = "this is not valid YAML: the bracket that opens here is not closed, or a comma is missing"
		f.hint = "is the file complete?"
	case strings.Contains(m[2], "did not find expected node content"):
		f.message = "this is not valid YAML: a value is missing here, or a bracket that opens here is not closed"
		f.hint = "is the file complete?"
	case strings.Contains(m[2], "could not find expected ':'"):
		f.hint = `a field is written "name: value"; is the colon missing, or is the file cut off here?`
	case strings.Contains(m[2], "found unexpected end of stream"):
		f.message = "this is not valid YAML: a quote opens here and is never closed"
		f.hint = "close the quotes; is the file complete?"
	case strings.Contains(m[2], "found character that cannot start any token"):
		f.hint = "put texts that begin with @, ` or % into quotes"
	case strings.Contains(m[2], "block sequence entries are not allowed"):
		f.hint = `a list begins on the line after its field name, each entry with "- "`
	case strings.Contains(m[2], "unknown anchor"), strings.Contains(m[2], "expected alphabetic or numeric"):
		f.hint = `a text that begins with * or & needs quotes around it`
	case strings.Contains(m[2], "unknown escape character"):
		f.hint = `within double quotes a backslash must be doubled; single quotes take it as it is`
	case strings.Contains(m[2], "control characters"):
		f.line = controlLine(text)
		f.hint = "remove the control character (in vim: /[^[:print:]\\t])"
	}
	return f
}

// tabLine is the first line whose indentation holds a tab and that is not
// blank, from 1; 0 for none.
func tabLine(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		rest := bytes.TrimSpace(line)
		if bytes.IndexByte(indent, '\t') >= 0 && len(rest) > 0 && rest[0] != '#' {
			return n
		}
	}
	return 0
}

func controlLine(text []byte) int {
	n := 1
	for _, b := range text {
		switch {
		case b == '\n':
			n++
		case b < ' ' && b != '\t' && b != '\r', b == 0x7f:
			return n
		}
	}
	return 1
}

var errNested = errors.New("nested too deeply")
