package inspect

import specs "github.com/opencontainers/runtime-spec/specs-go"

// Pod is the answer for a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Runtime is the container runtime's name and version.
	Runtime    string      `json:"runtime"`
	Containers []Container `json:"containers"`
}

// Container is the answer for one container.
type Container struct {
	Name string `json:"name"`
	// ID is the runtime's; empty for a container that does not exist.
	ID    string `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Message says why there are no rows.
	Message string `json:"message,omitempty"`
	Rows    []Row  `json:"rows,omitempty"`
	// Spec is what the runtime says it gave its OCI runtime, with masked values.
	Spec *specs.Spec `json:"runtimeSpec,omitempty"`
}

// Row is one thing that manifest and runtime speak about.
type Row struct {
	Section string `json:"section"`
	Name    string `json:"name"`
	// Manifest is what it asks for, in its words; empty where it does not say.
	Manifest string `json:"manifest,omitempty"`
	// Runtime is what it was given; empty for nothing.
	Runtime string `json:"runtime,omitempty"`
	// Differs says that the runtime was given something else than the manifest asks
	// for.
	Differs bool `json:"differs,omitempty"`
}

// Differences counts the rows that differ.
func (c *Container) Differences() int {
	n := 0
	for _, row := range c.Rows {
		if row.Differs {
			n++
		}
	}
	return n
}
