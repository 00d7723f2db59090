package podenv

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// subPaths are those of the container's volumeMounts, by their index; nil if no mount has
// any. Package volumes checks whether they may be mounted.
func subPaths(c *v1.Container, values map[string]string) ([]string, error) {
	var out []string
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		sub := m.SubPath
		if m.SubPathExpr != "" {
			var err error
			if sub, err = expand(m.SubPathExpr, values); err != nil {
				return nil, fmt.Errorf("subPathExpr %q: %w", m.SubPathExpr, err)
			}
		}
		if sub != "" && out == nil {
			out = make([]string, len(c.VolumeMounts))
		}
		if sub != "" {
			out[i] = sub
		}
	}
	return out, nil
}

// expand replaces $(NAME) by its value; $$ is a dollar sign. Unlike in command
// lines, a name without a value is an error, as upstream has it for subPathExpr.
func expand(expression string, values map[string]string) (string, error) {
	var err error
	path := pod.Expand(expression, func(name string) (string, bool) {
		value, ok := values[name]
		if !ok && err == nil {
			err = fmt.Errorf("missing value for %q", name)
		}
		return value, ok
	})
	if err != nil {
		return "", err
	}
	return path, nil
}
