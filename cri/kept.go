package cri

import (
	"encoding/json"
	"errors"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// keptSpec is what was kept of a container, and whether it is a sidecar; nil if there
// is nothing that matters for the termination of an orphaned pod.
func (c *Client) keptSpec(uid pod.UID, name string, annotations map[string]string) *v1.Container {
	out := &v1.Container{Name: name}
	what := c.readKept(uid, name, annotations)
	if what.PreStop != nil {
		out.Lifecycle, out.Ports = &v1.Lifecycle{PreStop: what.PreStop}, what.Ports
	}
	if annotations[pod.AnnotationSidecar] == "true" {
		always := v1.ContainerRestartPolicyAlways
		out.RestartPolicy, out.Ports = &always, what.Ports
	}
	if out.Lifecycle == nil && out.RestartPolicy == nil {
		return nil
	}
	return out
}

// readKept reads what can be read: a hook with a named port that cannot be read
// fails, and reports that.
func (c *Client) readKept(uid pod.UID, name string, annotations map[string]string) (what pod.Kept) {
	file := annotations[pod.AnnotationKept]
	if file == "" {
		if raw := annotations[spec.AnnotationPreStop]; raw != "" && json.Unmarshal([]byte(raw), &what.PreStop) != nil {
			what.PreStop = nil
		}
		if raw := annotations[spec.AnnotationPorts]; raw != "" && json.Unmarshal([]byte(raw), &what.Ports) != nil {
			what.Ports = nil
		}
		return what
	}
	what, err := c.spec.Dirs.ReadKept(uid, name, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("cannot read the saved preStop hook of a container: it is not run once the pod's manifest is removed", "uid", uid, "container", name, "error", err)
	}
	return what
}
