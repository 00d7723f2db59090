package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"podd/internal/strictyaml"
)

// explainJSON converts a syntax error into a message.
func explainJSON(e *strictyaml.JSONError, text []byte) fault {
	err := e.Err
	f := fault{syntax: true, line: lineAt(text, e.At), message: "this is not valid JSON: " + err.Error(), plain: "this is not valid JSON"}
	s, syntax := errors.AsType[*json.SyntaxError](err)
	if syntax {
		f.line = lineAt(text, e.At+int(s.Offset)-1)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.line = lineAt(text, len(bytes.TrimRight(text, "\r\n")))
		f.message = "this is not valid JSON: it is cut off at the end"
		f.hint = "is the file complete? Each { and [ needs its } and ]"
	case e.TooDeep():
		return explainBound(&strictyaml.BoundError{Bound: strictyaml.BoundDepth, Line: f.line, Bounds: limits})
	case strings.Contains(err.Error(), "in string literal"):
		f.hint = "a quote is not closed on this line; is the file complete?"
	case e.Objects > 0 && syntax && s.Offset <= 1:
		f.message = "the JSON object ends before this line, and what follows is not another one: " + err.Error()
		f.hint = "is a bracket closed too early? Remove what does not belong to the file"
	default:
		f.hint = "look for a missing comma, quote or bracket here or on the line before"
	}
	f.plainHint = f.hint
	return f
}

func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}
