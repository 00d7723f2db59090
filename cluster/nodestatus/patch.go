package nodestatus

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// nodePatch returns the strategic merge patch from one version of a Node to another. It
// replaces the addresses as a whole: a merge goes by type, and a node of two IP families has
// two addresses of one type (kubernetes/kubernetes#79391).
func nodePatch(from, to *v1.Node) ([]byte, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode the node: %w", err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("encode the node: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare the node: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, fmt.Errorf("decode the node's patch: %w", err)
	}
	status, _ := fields["status"].(map[string]any)
	if _, ok := status["addresses"]; !ok {
		return patch, nil
	}
	delete(status, "$setElementOrder/addresses")
	addresses := []any{map[string]string{"$patch": "replace"}}
	for _, a := range to.Status.Addresses {
		addresses = append(addresses, a)
	}
	status["addresses"] = addresses
	return json.Marshal(fields)
}
