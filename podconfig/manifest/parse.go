package manifest

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// parse calls each with the documents of a chunk, or with the fault of one: one of
// YAML, or as many as there are JSON objects in a row. No part of the chunk is
// skipped without a fault, unless each returns false, which ends it. Lines of the
// nodes are those within the chunk.
func parse(c strictyaml.Chunk, each func(*yaml.Node, *advice.Fault) bool) {
	var jsonErr error
	if bytes.HasPrefix(bytes.TrimLeft(c.Text, " \t\r\n"), []byte("{")) {
		jsonErr = strictyaml.ParseJSON(c.Text, limits, func(n *yaml.Node, err error) bool { return each(n, advice.Explain(c.Text, err)) })
		bad, ok := errors.AsType[*strictyaml.JSONError](jsonErr)
		if !ok {
			return
		}
		if bad.Objects > 0 {
			each(nil, advice.Explain(c.Text, bad))
			return
		}
	}
	n, err := strictyaml.Parse(c.Text, limits)
	if _, trails := errors.AsType[*strictyaml.TrailingError](err); err != nil && jsonErr != nil && !trails && looksLikeJSON(c.Text) {
		err = jsonErr
	}
	if err != nil || n != nil {
		each(n, advice.Explain(c.Text, err))
	}
}

// looksLikeJSON says that the first name of a text that begins with a bracket is quoted.
func looksLikeJSON(text []byte) bool {
	name := strictyaml.TrimJSON(strictyaml.TrimJSON(text)[1:])
	return len(name) > 0 && (name[0] == '"' || name[0] == '}')
}
