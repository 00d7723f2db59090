package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// ParserPanic begins the error about a text that makes the YAML parser panic.
const ParserPanic = "the parser gave up"

// TrailingError says that a text goes on after its first document.
type TrailingError struct {
	First *yaml.Node
	// Rest is the second document; nil if that is not YAML, which Err says.
	Rest *yaml.Node
	Err  error
}

func (e *TrailingError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return "there is more than one document"
}

// Parse parses the one document of a text of YAML; nil if there is none. Errors are
// *BoundError, *TrailingError and those of the YAML library.
func Parse(text []byte, b Bounds) (*yaml.Node, error) {
	if len(text) > b.Bytes {
		return nil, b.exceeded(BoundBytes, 1, len(text))
	}
	if marksOf(text) > b.Marks {
		return nil, b.exceeded(BoundMarks, 1, len(text))
	}
	n, rest, err := read(text)
	switch {
	case n == nil:
		return nil, err
	case err != nil || rest != nil:
		return nil, &TrailingError{First: n, Rest: rest, Err: err}
	}
	return n, measure(n, b)
}

// read returns the first document of a text, and what the parser finds after it, or an
// error. The parser is third-party code that is given arbitrary files; a panic of it
// costs one document and not the process.
func read(text []byte) (first, rest *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			first, rest, err = nil, nil, fmt.Errorf("yaml: %s: %v", ParserPanic, r)
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
