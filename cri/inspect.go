package cri

import (
	"context"
	"encoding/json"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// Inspection is what a runtime tells of a container beyond CRI's own fields, where
// it does: containerd and CRI-O tell the specification that their OCI runtime was
// given; CRI does not ask for it.
type Inspection struct {
	State pod.ContainerState
	// PID is that of the container's first process on the node; 0 where it has none
	// or the runtime does not tell.
	PID int
	// Spec is whole: it has the values of Secrets. Nil where the runtime does not
	// tell.
	Spec *specs.Spec
}

// Inspect asks for one container in detail. It blocks for one call.
func (c *Client) Inspect(ctx context.Context, id string) (Inspection, error) {
	call := "inspect container " + short(id)
	r, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Inspection{}, mapError(call, err)
	}
	out := Inspection{State: containerState(r.GetStatus().GetState())}
	text, told := r.GetInfo()["info"]
	if !told {
		return out, nil
	}
	var info struct {
		PID  int         `json:"pid"`
		Spec *specs.Spec `json:"runtimeSpec"`
	}
	// The decoder's error names types and offsets, no values.
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return out, fmt.Errorf("%s: read what the runtime tells of it: %w", call, err)
	}
	out.PID, out.Spec = info.PID, info.Spec
	return out, nil
}
