package status

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podd/internal/pod"
)

// Patch returns the strategic merge patch that sets the status of a pod in the apiserver
// to what podd computed, or nil if it is that already. It keeps what others write:
// conditions that are not the node agent's, and claims. It never leaves a terminal phase
// (upstream's status manager, mergePodStatus). The patch names the pod's UID, so that the
// apiserver refuses it for another pod of that name.
func Patch(theirs *v1.Pod, computed v1.PodStatus) ([]byte, error) {
	if pod.IsPhaseTerminal(theirs.Status.Phase) && !pod.IsPhaseTerminal(computed.Phase) {
		return nil, nil
	}
	merged := *computed.DeepCopy()
	merged.Conditions = mergeConditions(computed.Conditions, theirs.Status.Conditions)
	merged.ResourceClaimStatuses = theirs.Status.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = theirs.Status.ExtendedResourceClaimStatus
	merged.NominatedNodeName = theirs.Status.NominatedNodeName
	before, err := json.Marshal(v1.Pod{Status: theirs.Status})
	if err != nil {
		return nil, fmt.Errorf("encode the pod's status: %w", err)
	}
	after, err := json.Marshal(v1.Pod{Status: merged})
	if err != nil {
		return nil, fmt.Errorf("encode the pod's status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err != nil || string(patch) == "{}" {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, fmt.Errorf("decode a patch: %w", err)
	}
	if !changesStatus(fields["status"]) {
		return nil, nil
	}
	return json.Marshal(struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status json.RawMessage `json:"status"`
	}{
		Metadata: struct {
			UID types.UID `json:"uid"`
		}{theirs.UID},
		Status: fields["status"],
	})
}

// changesStatus is whether a patch of a status changes more than the order of its conditions.
func changesStatus(patch json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(patch, &fields) != nil {
		return len(patch) > 0
	}
	delete(fields, "$setElementOrder/conditions")
	return len(fields) > 0
}
