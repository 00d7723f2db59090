package inspect

import specs "github.com/opencontainers/runtime-spec/specs-go"

// Pod is the result for a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Runtime is the container runtime's name and version.
	Runtime string `json:"runtime"`
	// Settings are what the pod's annotations ask of podd.
	Settings   []Setting   `json:"settings,omitempty"`
	Containers []Container `json:"containers"`
}

// Container is the result for one container.
type Container struct {
	Name string `json:"name"`
	// ID is the runtime's; empty for a container that does not exist.
	ID    string `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Message says why there are no rows.
	Message string `json:"message,omitempty"`
	Rows    []Row  `json:"rows,omitempty"`
	// Spec is the specification that the runtime says it gave its OCI runtime, with
	// masked values.
	Spec *specs.Spec `json:"runtimeSpec,omitempty"`
}

// Row is one setting of the manifest, of the runtime, or of both.
type Row struct {
	Section string `json:"section"`
	Name    string `json:"name"`
	// Manifest is what the manifest asks for, in its words; empty if it does not
	// say.
	Manifest string `json:"manifest,omitempty"`
	// Runtime is what the runtime was given; empty for nothing.
	Runtime string `json:"runtime,omitempty"`
	// Differs is true if the runtime was not given what the manifest asks for.
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
