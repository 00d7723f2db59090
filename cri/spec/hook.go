package spec

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// maxHook bounds the bytes of a container's hook and ports in its annotations. Every list
// of the runtime contains them for every container, including dead ones, and a manifest may
// have megabytes.
const maxHook = 8 << 10

// hookAnnotations returns a container's preStop hook, and the ports that it may name, in the
// format of the kubelet's annotations. They are empty if there are none or they are too
// long. podd knows the hooks of its own pods from their stored specs; a kubelet that
// replaces it, or a podd that has lost its root directory, has only these annotations.
func hookAnnotations(c *v1.Container) (preStop, ports string, err error) {
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if preStop, err = asText(c.Lifecycle.PreStop); err != nil {
			return "", "", err
		}
	}
	if c.Ports != nil {
		if ports, err = asText(c.Ports); err != nil {
			return "", "", err
		}
	}
	if len(preStop)+len(ports) > maxHook {
		return "", "", nil
	}
	return preStop, ports, nil
}

func asText(value any) (string, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("write the container's preStop hook: %w", err)
	}
	return string(raw), nil
}
