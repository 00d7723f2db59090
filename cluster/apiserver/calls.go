package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"podd/internal/pod"
)

// PatchPodStatus applies a strategic merge patch to a pod's status and returns the pod as
// stored. The patch must name the pod's UID, so that it cannot hit another pod of that name
// (409).
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.Pod{}
	err := c.core.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).SubResource("status").
		Body(patch).Do(ctx).Into(out)
	return out, err
}

// DeletePod deletes the object of a pod that has ended, at once, and only if it has this UID
// (otherwise 409).
func (c *Client) DeletePod(ctx context.Context, namespace, name string, uid pod.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := int64(0)
	return c.core.Delete().Namespace(namespace).Resource("pods").Name(name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(uid))}).
		Do(ctx).Error()
}

// CreatePod creates a pod. It must be a mirror pod: a node may create no other.
func (c *Client) CreatePod(ctx context.Context, p *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.core.Post().Namespace(p.Namespace).Resource("pods").Body(p).Do(ctx).Error()
}

// CreateEvent creates an event.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.unthrottled.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
}

// PatchEvent applies a strategic merge patch to an event.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.unthrottled.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).Body(patch).Do(ctx).Error()
}

// ServiceAccount returns a service account, from the apiserver's cache.
func (c *Client) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.ServiceAccount{}
	err := c.core.Get().Namespace(namespace).Resource("serviceaccounts").Name(name).
		VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Do(ctx).Into(out)
	return out, err
}

// RequestToken requests a token of a service account.
func (c *Client) RequestToken(ctx context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &authenticationv1.TokenRequest{}
	err := c.core.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(r).Do(ctx).Into(out)
	return out, err
}

// ReviewToken returns the user that a token belongs to. authenticated is false if it belongs to
// nobody.
func (c *Client) ReviewToken(ctx context.Context, token string) (user authenticationv1.UserInfo, authenticated bool, err error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	out := &authenticationv1.TokenReview{}
	if err := c.authentication.Post().Resource("tokenreviews").Body(review).Do(ctx).Into(out); err != nil {
		return user, false, err
	}
	if !out.Status.Authenticated && out.Status.Error != "" {
		return user, false, errors.New(out.Status.Error)
	}
	return out.Status.User, out.Status.Authenticated, nil
}

// ReviewAccess reports whether a user may do something.
func (c *Client) ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (allowed bool, err error) {
	out := &authorizationv1.SubjectAccessReview{}
	err = c.authorization.Post().Resource("subjectaccessreviews").Body(&authorizationv1.SubjectAccessReview{Spec: spec}).Do(ctx).Into(out)
	return out.Status.Allowed && !out.Status.Denied, err
}

// ServerVersion returns the apiserver's version. By default every authenticated user may read
// it. A cluster may forbid that (403).
func (c *Client) ServerVersion(ctx context.Context) (*version.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer := c.unthrottled.Get().AbsPath("/version").Do(ctx)
	if err := answer.Error(); err != nil { // Raw's error would lack the apiserver's reason
		return nil, err
	}
	text, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	out := &version.Info{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("read the apiserver's version: %w", err)
	}
	return out, nil
}

// Node returns the Node of that name.
func (c *Client) Node(ctx context.Context, name string) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.Node{}
	// From the apiserver's cache: a slightly old version only leads to a patch that repeats
	// something.
	err := c.unthrottled.Get().Resource("nodes").Name(name).VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Do(ctx).Into(out)
	return out, err
}

// CurrentNode returns the current Node of that name, bypassing the apiserver's cache.
func (c *Client) CurrentNode(ctx context.Context, name string) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.Node{}
	err := c.unthrottled.Get().Resource("nodes").Name(name).Do(ctx).Into(out)
	return out, err
}

// CreateNode creates a Node and returns it as stored.
func (c *Client) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.Node{}
	err := c.unthrottled.Post().Resource("nodes").Body(node).Do(ctx).Into(out)
	return out, err
}

// PatchNode applies a strategic merge patch to a Node, or to its status if subresource is
// "status", and returns the Node as stored.
func (c *Client) PatchNode(ctx context.Context, name string, patch []byte, subresource ...string) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.Node{}
	err := c.unthrottled.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource(subresource...).Body(patch).Do(ctx).Into(out)
	return out, err
}

// Lease returns the node's Lease.
func (c *Client) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &coordinationv1.Lease{}
	err := c.coordination.Get().Namespace(v1.NamespaceNodeLease).Resource("leases").Name(name).Do(ctx).Into(out)
	return out, err
}

// CreateLease creates the node's Lease and returns it as stored.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &coordinationv1.Lease{}
	err := c.coordination.Post().Namespace(v1.NamespaceNodeLease).Resource("leases").Body(lease).Do(ctx).Into(out)
	return out, err
}

// UpdateLease replaces the node's Lease and returns it as stored. It fails if the Lease has
// changed meanwhile (409).
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &coordinationv1.Lease{}
	err := c.coordination.Put().Namespace(v1.NamespaceNodeLease).Resource("leases").Name(lease.Name).Body(lease).Do(ctx).Into(out)
	return out, err
}
