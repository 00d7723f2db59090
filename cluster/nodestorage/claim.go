package nodestorage

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ClaimClient writes the status of claims. It blocks until the apiserver has answered.
type ClaimClient interface {
	PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error)
}

// PatchClaim changes the status of a claim from one version to another, and returns the claim
// as stored. It fails if the claim has changed meanwhile (409).
func PatchClaim(ctx context.Context, client ClaimClient, from, to *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	before, err := json.Marshal(v1.PersistentVolumeClaim{Status: from.Status})
	if err != nil {
		return nil, fmt.Errorf("encode the claim: %w", err)
	}
	after := v1.PersistentVolumeClaim{Status: to.Status}
	after.ResourceVersion = from.ResourceVersion
	text, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the claim: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, text, v1.PersistentVolumeClaim{})
	if err != nil {
		return nil, fmt.Errorf("compare the claim: %w", err)
	}
	return client.PatchClaimStatus(ctx, from.Namespace, from.Name, patch)
}
