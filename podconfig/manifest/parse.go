package manifest

import (
	"bytes"
	"errors"
	"regexp"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
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
func parse(c strictyaml.Chunk, each func(*yaml.Node, *fault) bool) {
	var jsonErr error
	if bytes.HasPrefix(bytes.TrimLeft(c.Text, " \t\r\n"), []byte("{")) {
		jsonErr = strictyaml.JSON(c.Text, limits, func(n *yaml.Node, err error) bool { return each(n, explain(err, c.Text)) })
		bad, ok := errors.AsType[*strictyaml.JSONError](jsonErr)
		switch {
		case !ok:
			return
		case bad.Objects > 0, bad.TooDeep(): // YAML would be so too
			each(nil, explain(bad, c.Text))
			return
		}
	}
	n, err := strictyaml.Parse(c.Text, limits)
	if _, trails := errors.AsType[*strictyaml.TrailingError](err); err != nil && jsonErr != nil && !trails && looksLikeJSON(c.Text) {
		err = jsonErr
	}
	if err != nil || n != nil {
		each(n, explain(err, c.Text))
	}
}

// explain is the fault that an error of the parsers is; nil for nil.
func explain(err error, text []byte) *fault {
	if err == nil {
		return nil
	}
	var f fault
	if bad, ok := errors.AsType[*strictyaml.BoundError](err); ok {
		f = explainBound(bad)
	} else if bad, ok := errors.AsType[*strictyaml.TrailingError](err); ok {
		f = explainTrailing(bad, text)
	} else if bad, ok := errors.AsType[*strictyaml.JSONError](err); ok {
		f = explainJSON(bad, text)
	} else {
		f = *explainYAML(err, text)
	}
	return &f
}

// looksLikeJSON says that the first name of a text that begins with a bracket is quoted.
func looksLikeJSON(text []byte) bool {
	name := strictyaml.TrimJSON(strictyaml.TrimJSON(text)[1:])
	return len(name) > 0 && (name[0] == '"' || name[0] == '}')
}

// explainTrailing is the fault of a text that goes on after its first document. To the
// parser, what follows a complete value is another one.
func explainTrailing(e *strictyaml.TrailingError, text []byte) fault {
	f := fault{syntax: true, message: "the document ends before this line, and what follows does not belong to it",
		hint: "is a bracket closed too early, or a line indented less than the first? Documents are separated by a line ---"}
	if e.Rest != nil {
		f.line = e.Rest.Line
	} else {
		f.line = explainYAML(e.Err, text).line
	}
	first := e.First
	if flow := first.Style&yaml.FlowStyle != 0 || len(first.Content) == 1 && first.Content[0].Style&yaml.FlowStyle != 0; !flow {
		return f // its next line is less indented: more of the same document, as a rule
	}
	// An error of the parser is about what it has read by then.
	for number, line := range strictyaml.Lines(text) {
		if number > first.Line && number <= f.line && beginsDocument.MatchString(line) {
			f.line = number
			f.message = "another document begins on this line, and nothing separates it from the one before"
			return f.by(edit{line: number, new: "---\n", words: "write a line %s before it"})
		}
	}
	return f
}

// beginsDocument matches the first line of an object.
var beginsDocument = regexp.MustCompile(`^(\{|apiVersion:|kind:)`)
