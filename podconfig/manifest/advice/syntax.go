package advice

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
)

const rightFile = "is this the right file?"

// Explain is the fault that an error of strictyaml's parsers in a text is; nil for nil.
func Explain(text []byte, err error) *Fault {
	if err == nil {
		return nil
	}
	var f Fault
	switch e := err.(type) {
	case *strictyaml.BoundError:
		f = explainBound(e)
	case *strictyaml.TrailingError:
		f = explainTrailing(e, text)
	case *strictyaml.JSONError:
		f = explainJSON(e, text)
	default:
		f = explainYAML(err, text)
	}
	return &f
}

// explainBound is the fault of a document that exceeds a bound.
func explainBound(e *strictyaml.BoundError) Fault {
	f := Fault{Line: e.Line, Message: e.Error(), ExceedsBounds: e.Bound == strictyaml.BoundMarks}
	switch e.Bound {
	case strictyaml.BoundBytes:
		f.Hint = "an apiserver does not accept larger objects either; " + rightFile
	case strictyaml.BoundMarks, strictyaml.BoundNodes:
		f.Hint = "a Pod has a few hundred; " + rightFile
	case strictyaml.BoundDepth:
		f.Hint = "a Pod needs about 15; " + rightFile
	case strictyaml.BoundAliases:
		f.Hint = "this looks like an alias bomb; write the values out"
	case strictyaml.BoundCycle:
		f.Hint = "write the value out"
		f.MaskedMessage, f.MaskedHint = "an alias refers to the object that contains it", f.Hint
	}
	return f
}

// explainTrailing is the fault of a text that goes on after its first document. To the
// parser, what follows a complete value is another one.
func explainTrailing(e *strictyaml.TrailingError, text []byte) Fault {
	f := Fault{syntax: true, Message: "the document ends before this line, and what follows does not belong to it",
		Hint: "is a bracket closed too early, or a line indented less than the first? Documents are separated by a line ---"}
	if e.Rest != nil {
		f.Line = e.Rest.Line
	} else {
		f.Line = explainYAML(e.Err, text).Line
	}
	first := e.First
	if flow := first.Style&yaml.FlowStyle != 0 || len(first.Content) == 1 && first.Content[0].Style&yaml.FlowStyle != 0; !flow {
		return f // its next line is less indented: more of the same document, as a rule
	}
	// An error of the parser is about what it has read by then.
	for number, line := range strictyaml.Lines(text) {
		if number > first.Line && number <= f.Line && beginsDocument.MatchString(line) {
			f.Line = number
			f.Message = "another document begins on this line, and nothing separates it from the one before"
			return f.withEdit(Edit{Line: number, New: "---\n", hintFormat: "write a line %s before it"})
		}
	}
	return f
}

// beginsDocument matches the first line of an object.
var beginsDocument = regexp.MustCompile(`^(\{|apiVersion:|kind:)`)

// explainJSON converts a syntax error into a message.
func explainJSON(e *strictyaml.JSONError, text []byte) Fault {
	err := e.Err
	f := Fault{syntax: true, Line: lineAt(text, e.At), Message: "this is not valid JSON: " + err.Error(), MaskedMessage: "this is not valid JSON"}
	s, syntax := errors.AsType[*json.SyntaxError](err)
	if syntax {
		f.Line = lineAt(text, e.At+int(s.Offset)-1)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.Line = lineAt(text, len(bytes.TrimRight(text, "\r\n")))
		f.Message = "this is not valid JSON: it is cut off at the end"
		f.Hint = "is the file complete? Each { and [ needs its } and ]"
	case strings.Contains(err.Error(), "in string literal"):
		f.Hint = "a quote is not closed on this line; is the file complete?"
	case e.Objects > 0 && syntax && s.Offset <= 1:
		f.Message = "the JSON object ends before this line, and what follows is not another one: " + err.Error()
		f.Hint = "is a bracket closed too early? Remove what does not belong to the file"
	default:
		f.Hint = "look for a missing comma, quote or bracket here or on the line before"
	}
	f.MaskedHint = f.Hint
	return f
}

func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}
