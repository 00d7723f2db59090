package pod

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// maxKept is how many bytes podd keeps of a container's hook and ports in its
// annotations, which all of the runtime's lists contain for every container,
// including dead ones; a manifest may have megabytes.
const maxKept = 8 << 10

// Kept is the part of a container's spec that its termination needs when its manifest
// is gone: the hook, and the ports that it may name.
type Kept struct {
	PreStop *v1.LifecycleHandler `json:"preStop,omitempty"`
	Ports   []v1.ContainerPort   `json:"ports,omitempty"`
}

// KeptOf returns what is to be kept of a container.
func KeptOf(c *v1.Container) Kept {
	out := Kept{Ports: c.Ports}
	if c.Lifecycle != nil {
		out.PreStop = c.Lifecycle.PreStop
	}
	return out
}

// Texts returns both in the format of the kubelet's annotations, empty if there is
// nothing to keep or they are too long for annotations.
func (k Kept) Texts() (preStop, ports string, err error) {
	for _, part := range []struct {
		value any
		there bool
		text  *string
	}{{k.PreStop, k.PreStop != nil, &preStop}, {k.Ports, k.Ports != nil, &ports}} {
		if !part.there {
			continue
		}
		raw, err := json.Marshal(part.value)
		if err != nil {
			return "", "", fmt.Errorf("keep the container's preStop hook: %w", err)
		}
		*part.text = string(raw)
	}
	if len(preStop)+len(ports) > maxKept {
		return "", "", nil
	}
	return preStop, ports, nil
}
