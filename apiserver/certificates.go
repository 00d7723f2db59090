package apiserver

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CreateSigningRequest creates a CertificateSigningRequest.
func (c *Client) CreateSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.certificates.Post().Resource("certificatesigningrequests").Body(r).Do(ctx).Error()
}

// FollowSigningRequest is FollowNode for a CertificateSigningRequest.
func (c *Client) FollowSigningRequest(ctx context.Context, name string, set func(all []*certificatesv1.CertificateSigningRequest, err error)) {
	follow(ctx, selection{c.certificates, "certificatesigningrequests", metav1.NamespaceAll, named(name)}, &certificatesv1.CertificateSigningRequest{}, set)
}
