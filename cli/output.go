package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteObject writes v as json or yaml, with the field names of its JSON form. yaml starts with
// a document separator, so that a reader can separate the documents of a watch.
func WriteObject(w io.Writer, format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	if format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("encode the response: %w", err)
		}
		b = append([]byte("---\n"), b...)
	} else {
		b = append(b, '\n')
	}
	_, err = w.Write(b)
	return err
}
