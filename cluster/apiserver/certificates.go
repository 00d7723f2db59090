package apiserver

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"podd/internal/wake"
)

// CreateSigningRequest creates a CertificateSigningRequest.
func (c *Client) CreateSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.certificates.Post().Resource("certificatesigningrequests").Body(r).Do(ctx).Error()
}

// FollowSigningRequest is FollowNode for a CertificateSigningRequest.
func (c *Client) FollowSigningRequest(ctx context.Context, name string, set func(all []*certificatesv1.CertificateSigningRequest, err error)) {
	follow(ctx, selection{c.certificates, "certificatesigningrequests", metav1.NamespaceAll, byName(name), 0}, &certificatesv1.CertificateSigningRequest{}, set)
}

// CreatePodCertificateRequest creates a PodCertificateRequest and returns it as stored, with the
// name that the apiserver gave it. An apiserver before Kubernetes 1.37 does not serve v1 (404).
func (c *Client) CreatePodCertificateRequest(ctx context.Context, r *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &certificatesv1.PodCertificateRequest{}
	err := c.certificates.Post().Namespace(r.Namespace).Resource("podcertificaterequests").Body(r).Do(ctx).Into(out)
	return out, err
}

// FollowPodCertificateRequests is FollowPods for the PodCertificateRequests of a node. The
// apiserver shows a node no others.
func (c *Client) FollowPodCertificateRequests(ctx context.Context, node string, set func(all []*certificatesv1.PodCertificateRequest, err error)) {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", node)
	follow(ctx, selection{c.certificates, "podcertificaterequests", metav1.NamespaceAll, ofNode, 0}, &certificatesv1.PodCertificateRequest{}, set)
}

// FollowTrustBundles is FollowNode for the ClusterTrustBundle of that name. If the name is
// empty, it follows all bundles of a signer. It follows v1, or v1beta1 where only that is
// served, as before Kubernetes 1.37. If neither is, set gets the error, and both are asked
// again, every ten seconds at most.
func (c *Client) FollowTrustBundles(ctx context.Context, name, signer string, set func(all []*certificatesv1.ClusterTrustBundle, err error)) {
	which := byName(name)
	if name == "" {
		which = fields.OneTermEqualSelector("spec.signerName", signer)
	}
	bundles := func(client rest.Interface) selection {
		return selection{client, "clustertrustbundles", metav1.NamespaceAll, which, 0}
	}
	pace, unserved := wake.Backoff{Initial: 500 * time.Millisecond, Max: 10 * time.Second}, false
	for delay, beta := time.Duration(0), false; ctx.Err() == nil; beta = !beta {
		following, stop := context.WithCancel(ctx)
		deliver := func(all []*certificatesv1.ClusterTrustBundle, err error) {
			if !apierrors.IsNotFound(err) {
				unserved, delay = false, 0
				set(all, err)
				return
			}
			if unserved {
				set(all, fmt.Errorf("%w: the apiserver serves no clustertrustbundles (feature gate ClusterTrustBundle, --runtime-config)", err))
			}
			unserved = !unserved // or the other version is asked at once
			stop()
		}
		if beta {
			follow(following, bundles(c.certificatesBeta), &certificatesv1beta1.ClusterTrustBundle{},
				func(all []*certificatesv1beta1.ClusterTrustBundle, err error) { deliver(stable(all), err) })
		} else {
			follow(following, bundles(c.certificates), &certificatesv1.ClusterTrustBundle{}, deliver)
		}
		stop()
		if !unserved {
			delay = pace.Next(delay)
			wake.Sleep(ctx, delay)
		}
	}
}

// stable converts bundles of v1beta1, which have the fields of v1.
func stable(beta []*certificatesv1beta1.ClusterTrustBundle) []*certificatesv1.ClusterTrustBundle {
	all := make([]*certificatesv1.ClusterTrustBundle, 0, len(beta))
	for _, b := range beta {
		all = append(all, &certificatesv1.ClusterTrustBundle{ObjectMeta: b.ObjectMeta, Spec: certificatesv1.ClusterTrustBundleSpec(b.Spec)})
	}
	return all
}
