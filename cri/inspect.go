package cri

import (
	"context"
	"encoding/json"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// Inspection is what a runtime reports about a container beyond CRI's own fields, if
// it does: containerd and CRI-O report the specification that they passed to their
// OCI runtime; CRI does not require it.
type Inspection struct {
	State pod.ContainerState
	// PID is the node's PID of the container's first process; 0 if it has none or the
	// runtime does not report it.
	PID int
	// Spec is complete, including the values of Secrets. Nil if the runtime does not
	// report it.
	Spec *specs.Spec
}

// Inspect queries one container in detail. It blocks for one call.
func (c *Client) Inspect(ctx context.Context, id string) (Inspection, error) {
	call := "inspect container " + short(id)
	r, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Inspection{}, mapError(call, err)
	}
	out := Inspection{State: containerState(r.GetStatus().GetState())}
	if out.PID, out.Spec, err = verboseInfo(r); err != nil {
		return out, fmt.Errorf("%s: read the runtime's information about it: %w", call, err)
	}
	return out, nil
}

// verboseInfo reads what a verbose answer adds to CRI's own fields.
func verboseInfo(r *runtimeapi.ContainerStatusResponse) (pid int, spec *specs.Spec, err error) {
	text, told := r.GetInfo()["info"]
	if !told {
		return 0, nil, nil
	}
	var info struct {
		PID  int         `json:"pid"`
		Spec *specs.Spec `json:"runtimeSpec"`
	}
	// The decoder's error names types and offsets, no values.
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return 0, nil, err
	}
	return info.PID, info.Spec, nil
}
