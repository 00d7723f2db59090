package apiserver

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// ResourceClaim returns a ResourceClaim. A pod of this node must name it.
func (c *Client) ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &resourcev1.ResourceClaim{}
	err := c.resource.Get().Namespace(namespace).Resource("resourceclaims").Name(name).Do(ctx).Into(out)
	return out, err
}

// DeleteResourceSlices deletes this node's ResourceSlices of one driver, or of all drivers if
// driver is "". A cluster without such objects answers 404.
func (c *Client) DeleteResourceSlices(ctx context.Context, node, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	which := fields.Set{resourcev1.ResourceSliceSelectorNodeName: node}
	if driver != "" {
		which[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	return c.resource.Delete().Resource("resourceslices").
		VersionedParams(&metav1.ListOptions{FieldSelector: which.String()}, metav1.ParameterCodec).
		Body(&metav1.DeleteOptions{}).Do(ctx).Error()
}
