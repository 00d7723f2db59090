package apiserver

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Claim returns a PersistentVolumeClaim, which a pod of this node must name.
func (c *Client) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.PersistentVolumeClaim{}
	err := c.core.Get().Namespace(namespace).Resource("persistentvolumeclaims").Name(name).Do(ctx).Into(out)
	return out, err
}

// PersistentVolume returns a PersistentVolume, to which such a claim must be bound.
func (c *Client) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.PersistentVolume{}
	err := c.core.Get().Resource("persistentvolumes").Name(name).Do(ctx).Into(out)
	return out, err
}
