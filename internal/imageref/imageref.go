// Package imageref parses the names of images in pods and archives. Its functions are
// pure; the grammar is github.com/distribution/reference's.
package imageref

import (
	"fmt"

	"github.com/distribution/reference"
)

// Full returns the full name, with registry and tag or digest, for comparing the names of
// images; empty for an invalid name.
func Full(ref string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ""
	}
	return named.String()
}

// WithTag adds the default tag to a reference without tag and digest. It does not
// expand a short name: that is up to the runtime.
func WithTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// Registry returns where an image is pulled from: a host, with its port if the name has
// one. It returns an invalid name unchanged.
func Registry(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	return reference.Domain(named)
}
