package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// fault is one thing wrong with a document.
type fault struct {
	// syntax: the text could not be parsed.
	syntax bool
	// line is that within the chunk, from 1.
	line          int
	field         string
	message, hint string
	// plain and plainHint replace them if the text may be confidential; "" if they
	// show nothing of it.
	plain, plainHint string
	// second is another line that the message refers to; 0 for none.
	second int
	// lenient says that --manifest-validation decides whether it counts.
	lenient bool
	// follows: a first document was read, and something follows it.
	follows bool
	// edit is the change that hint asks for; nil where it is not one of the text, or
	// leaves a choice.
	edit *edit
	// bound: the text exceeds the bounds, so no other fault is searched for in it.
	bound bool
}

// parse calls each with the documents of a chunk, or with the fault of one: one of
// YAML, or as many as there are JSON objects in a row. No part of the chunk is
// skipped without a fault, unless each returns false, which ends it. Lines of the
// nodes are those within the chunk.
func parse(c chunk, each func(*yaml.Node, *fault) bool) {
	var jsonFault *fault
	if bytes.HasPrefix(bytes.TrimLeft(c.text, " \t\r\n"), []byte("{")) {
		objects, bad := parseJSON(c.text, each)
		switch {
		case bad == nil:
			return
		case objects > 0, !bad.syntax: // beyond a bound, YAML would be so too
			each(nil, bad)
			return
		}
		jsonFault = bad
	}
	n, bad := parseYAML(c.text)
	switch {
	case bad != nil && jsonFault != nil && !bad.follows && looksLikeJSON(c.text):
		each(nil, jsonFault)
	case bad != nil || n != nil:
		each(n, bad)
	}
}

// looksLikeJSON says that the first name of a text that begins with a bracket is quoted.
func looksLikeJSON(text []byte) bool {
	name := trimJSON(trimJSON(text)[1:])
	return len(name) > 0 && (name[0] == '"' || name[0] == '}')
}

// parseYAML parses the one document of a text; nil if there is none.
func parseYAML(text []byte) (*yaml.Node, *fault) {
	if len(text) > maxDocument {
		return nil, tooLong(len(text))
	}
	if bad := tooManyMarks(text); bad != nil {
		return nil, bad
	}
	n, rest, err := readYAML(text)
	switch {
	case err != nil && n == nil:
		return nil, explainYAML(err, text)
	case n == nil:
		return nil, nil
	case err != nil || rest != nil:
		// To the parser, what follows a complete value is another document.
		return nil, afterEnd(n, rest, err, text)
	}
	return n, measure(n)
}

// afterEnd is the fault of a text that goes on after its first document.
func afterEnd(first, rest *yaml.Node, err error, text []byte) *fault {
	f := fault{syntax: true, follows: true, line: 1, message: "the document ends before this line, and what follows does not belong to it",
		hint: "is a bracket closed too early, or a line indented less than the first? Documents are separated by a line ---"}
	if rest != nil {
		f.line = rest.Line
	} else {
		f.line = explainYAML(err, text).line
	}
	if flow := first.Style&yaml.FlowStyle != 0 || len(first.Content) == 1 && first.Content[0].Style&yaml.FlowStyle != 0; !flow {
		return &f // its next line is less indented: more of the same document, as a rule
	}
	// An error of the parser is about what it has read by then.
	for number, line := range numbered(text) {
		if number > first.Line && number <= f.line && beginsDocument.MatchString(line) {
			f.line = number
			f.message = "another document begins on this line, and nothing separates it from the one before"
			f = f.by(edit{line: number, new: "---\n", words: "write a line %s before it"})
			break
		}
	}
	return &f
}

// beginsDocument matches the first line of an object.
var beginsDocument = regexp.MustCompile(`^(\{|apiVersion:|kind:)`)

func tooLong(size int) *fault {
	return &fault{line: 1, message: "the document is " + mebibytes(int64(size)) + ", more than the limit of 3 MiB",
		hint: "an apiserver does not accept larger objects either; " + rightFile}
}

// readYAML returns the first document of a text, and what the parser finds after it,
// or an error. The parser is third-party code that is given arbitrary files; if it
// panics, that costs this document and not every pod of the node.
func readYAML(text []byte) (first, rest *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			first, rest, err = nil, nil, fmt.Errorf("yaml: %s: %v", gaveUp, r)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(text))
	next := func() (*yaml.Node, error) {
		n := &yaml.Node{}
		err := d.Decode(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return nil, err
		case n.Kind == yaml.DocumentNode:
			return n.Content[0], nil
		}
		return n, nil
	}
	if first, err = next(); first != nil && err == nil {
		rest, err = next()
	}
	return first, rest, err
}
