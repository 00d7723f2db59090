package cli

import (
	"fmt"
	"io"

	"podd/server"
)

// PrintVersion writes a version as a line, or in the given format: json or
// yaml.
func PrintVersion(w io.Writer, v server.Version, output string) error {
	if output != "" {
		return WriteObject(w, output, v)
	}
	_, err := fmt.Fprintf(w, "podd %s (Kubernetes %s, %s, %s)\n", v.Version, v.Kubernetes, v.GoVersion, v.Platform)
	return err
}
