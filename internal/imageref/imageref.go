// Package imageref reads the names of images as pods and archives write them.
// Its functions are pure; the grammar is github.com/distribution/reference's.
package imageref

import (
	"fmt"

	"github.com/distribution/reference"
)

// Full is the name in full, with registry and tag or digest, by which names of
// one image compare; empty for what is no name.
func Full(ref string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ""
	}
	return named.String()
}

// WithTag adds the tag that a reference without tag and digest means. It does
// not make a short name a full one: whose that is, the runtime says.
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

// Registry is where an image is pulled from: a host, with its port if the name
// has one. What is no name is returned as it is.
func Registry(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	return reference.Domain(named)
}
