package allocation

import (
	"encoding/json"
	"errors"
	"hash/fnv"

	"podd/internal/pod"
)

// Checkpoint is the part of one pod's allocation that survives a restart of podd: its
// part of upstream's allocated_pods_state.
type Checkpoint struct {
	UID pod.UID `json:"uid"`
	// Source is the pod's source.
	Source pod.Source `json:"source"`
	// Resources are what the node granted.
	Resources Resources `json:"resources"`
	// Checksum is over the others.
	Checksum uint32 `json:"checksum"`
}

// NeedsCheckpoint says whether a pod's allocation has to be checkpointed: only with a
// source that may change the same pod can desired and granted resources differ. A file's
// or an HTTP source's pod with other resources is another pod.
func NeedsCheckpoint(d *pod.Desired) bool {
	return d.Source == pod.SourceAPIServer && len(d.Pod.Spec.Containers) > 0
}

// CheckpointOf is the checkpoint of a granted pod.
func CheckpointOf(granted *pod.Desired) Checkpoint {
	c := Checkpoint{UID: granted.UID(), Source: granted.Source, Resources: ResourcesOf(granted.Pod)}
	c.Checksum = c.sum()
	return c
}

// Check returns an error if the checkpoint is not what was written.
func (c Checkpoint) Check() error {
	if c.Checksum != c.sum() {
		return errors.New("its checksum does not match")
	}
	return nil
}

// sum is that of the JSON form, which is the same byte for byte when the file is read
// back.
func (c Checkpoint) sum() uint32 {
	c.Checksum = 0
	h := fnv.New32a()
	if err := json.NewEncoder(h).Encode(c); err != nil {
		return 0 // there is nothing in it that could not be written
	}
	return h.Sum32()
}

// Restore is the allocation of a pod that an earlier podd admitted. Anything else
// that its source desires by now is a proposal.
func (c Checkpoint) Restore(d *pod.Desired) Allocation {
	if c.Resources.Match(d.Pod) {
		return Allocation{Granted: d}
	}
	return Allocation{Granted: c.Resources.ApplyTo(d)}
}
