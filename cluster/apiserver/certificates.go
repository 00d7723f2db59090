package apiserver

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// FollowTrustBundles is FollowNode for the ClusterTrustBundle of that name. If the name is
// empty, it follows all bundles of a signer.
func (c *Client) FollowTrustBundles(ctx context.Context, name, signer string, set func(all []*certificatesv1beta1.ClusterTrustBundle, err error)) {
	which := byName(name)
	if name == "" {
		which = fields.OneTermEqualSelector("spec.signerName", signer)
	}
	follow(ctx, selection{c.certificatesBeta, "clustertrustbundles", metav1.NamespaceAll, which, 0}, &certificatesv1beta1.ClusterTrustBundle{},
		func(all []*certificatesv1beta1.ClusterTrustBundle, err error) {
			if apierrors.IsNotFound(err) {
				err = fmt.Errorf("%w: the apiserver does not serve clustertrustbundles of %s (feature gate ClusterTrustBundle, --runtime-config)",
					err, certificatesv1beta1.SchemeGroupVersion)
			}
			set(all, err)
		})
}
