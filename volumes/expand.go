package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// expand replaces $(NAME) by its value; $$ is a dollar sign. Unlike in command
// lines, a name without a value is an error, as upstream has it for subPathExpr.
func expand(expression string, env map[string]string) (string, error) {
	var err error
	path := pod.Expand(expression, func(name string) (string, bool) {
		value, ok := env[name]
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

// environment is what subPathExpr may name where nobody knows more: literal
// values and the pod's own fields. An expression that names anything else is an
// error.
func environment(p *v1.Pod, c *v1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env[e.Name] = pod.Expand(e.Value, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
			continue
		}
		if e.ValueFrom.FieldRef == nil {
			continue
		}
		if value, ok := pod.Field(p, e.ValueFrom.FieldRef.FieldPath); ok {
			env[e.Name] = value
		}
	}
	return env
}
