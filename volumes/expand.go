package volumes

import (
	"fmt"

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
