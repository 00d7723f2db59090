package pod

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// maxKept is how many bytes podd keeps of a container's hook and ports in its
// annotations. Every list of the runtime's carries them, for every container,
// dead ones too; a manifest may have megabytes.
const maxKept = 8 << 10

// Kept is what of a container's spec its end needs when its manifest is gone:
// the hook, and the ports that it may name.
type Kept struct {
	PreStop *v1.LifecycleHandler `json:"preStop,omitempty"`
	Ports   []v1.ContainerPort   `json:"ports,omitempty"`
}

// KeptOf is what is to be kept of a container.
func KeptOf(c *v1.Container) Kept {
	out := Kept{Ports: c.Ports}
	if c.Lifecycle != nil {
		out.PreStop = c.Lifecycle.PreStop
	}
	return out
}

// Texts are the two as the kubelet's annotations have them, empty where there is
// nothing to keep. Both are empty where they are too long for annotations.
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
