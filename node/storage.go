package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/cluster/apiserver"
	"podd/cluster/nodestorage"
)

// clusterStorage implements csi.Cluster.
type clusterStorage struct {
	*nodestorage.Attachments
	*apiserver.Client
	m *membership
}

// InUseChanged makes the registrar write the Node's status.
func (s clusterStorage) InUseChanged() { s.m.nodeStatusChanged() }

// Token waits for a token.
func (s clusterStorage) Token(ctx context.Context, p *v1.Pod, projection *v1.ServiceAccountTokenProjection) (string, metav1.Time, error) {
	return s.m.tokens.AwaitToken(ctx, p, projection)
}

// PatchClaim changes the status of a claim.
func (s clusterStorage) PatchClaim(ctx context.Context, from, to *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return nodestorage.PatchClaim(ctx, s.Client, from, to)
}

// DriversChanged makes the CSINodeUpdater write the CSINode.
func (s clusterStorage) DriversChanged() { s.m.drivers.Changed() }
