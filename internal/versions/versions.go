package versions

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed versions.env
var file string

// Kubernetes is the release that podd takes its API, defaulting and validation from, and
// that it is compared with, such as "v1.2.3".
var Kubernetes = "v" + All()["KUBERNETES"]

// KubernetesMinor is the minor release of Kubernetes, such as "1.2".
var KubernetesMinor = Kubernetes[1:strings.LastIndexByte(Kubernetes, '.')]

// All returns the releases by their names in versions.env, without "v".
func All() map[string]string {
	all, err := Parse(file)
	if err != nil {
		panic(err)
	}
	return all
}

// Parse reads text in the form of versions.env: NAME=1.2.3, a line each, and comments.
func Parse(text string) (map[string]string, error) {
	all := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, release, ok := strings.Cut(line, "=")
		if !ok || strings.Count(release, ".") != 2 || strings.ContainsAny(line, " \"'v") {
			return nil, fmt.Errorf("versions.env line %d: %q is not NAME=1.2.3", i+1, line)
		}
		if all[name] != "" {
			return nil, fmt.Errorf("versions.env line %d: %s was given before", i+1, name)
		}
		all[name] = release
	}
	if all["KUBERNETES"] == "" {
		return nil, fmt.Errorf("versions.env has no KUBERNETES")
	}
	return all, nil
}
