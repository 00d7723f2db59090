package apiserver

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim returns a PersistentVolumeClaim. A pod of this node must name it.
func (c *Client) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.PersistentVolumeClaim{}
	err := c.core.Get().Namespace(namespace).Resource("persistentvolumeclaims").Name(name).Do(ctx).Into(out)
	return out, err
}

// PersistentVolume returns a PersistentVolume. A claim that a pod of this node names must be
// bound to it.
func (c *Client) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.PersistentVolume{}
	err := c.core.Get().Resource("persistentvolumes").Name(name).Do(ctx).Into(out)
	return out, err
}

// VolumeAttachment returns a VolumeAttachment of this node.
func (c *Client) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &storagev1.VolumeAttachment{}
	err := c.storage.Get().Resource("volumeattachments").Name(name).Do(ctx).Into(out)
	return out, err
}

// CSINode returns this node's CSINode. name is the node's.
func (c *Client) CSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &storagev1.CSINode{}
	err := c.storage.Get().Resource("csinodes").Name(name).Do(ctx).Into(out)
	return out, err
}

// CreateCSINode creates this node's CSINode.
func (c *Client) CreateCSINode(ctx context.Context, n *storagev1.CSINode) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.storage.Post().Resource("csinodes").Body(n).Do(ctx).Error()
}

// UpdateCSINode replaces this node's CSINode. It fails if the object has changed meanwhile
// (409).
func (c *Client) UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.storage.Put().Resource("csinodes").Name(n.Name).Body(n).Do(ctx).Error()
}

// PatchClaimStatus applies a strategic merge patch to the status of a claim, and returns the
// claim as stored.
func (c *Client) PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.PersistentVolumeClaim{}
	err := c.core.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("persistentvolumeclaims").Name(name).SubResource("status").
		Body(patch).Do(ctx).Into(out)
	return out, err
}
