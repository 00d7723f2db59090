package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"podd/internal/atomicfile"
)

// Requester submits requests to an apiserver.
type Requester interface {
	CreateSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error
	// FollowSigningRequest calls set with the request of that name, if it exists, and again
	// after each change. While the apiserver cannot tell, it calls set with the reason. It
	// blocks until ctx ends.
	FollowSigningRequest(ctx context.Context, name string, set func(all []*certificatesv1.CertificateSigningRequest, err error))
}

// refusedError says that somebody denied a request, or a signer failed it. Another request of
// the same kind will hardly fare better.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// loadOrCreateKey returns the key of the pending request, or a new key, which it writes to disk
// first.
func (s *Store) loadOrCreateKey() (crypto.Signer, []byte, error) {
	if text, err := os.ReadFile(s.pendingKeyPath()); err == nil {
		if parsed, err := keyutil.ParsePrivateKeyPEM(text); err == nil {
			if signer, ok := parsed.(crypto.Signer); ok {
				return signer, text, nil
			}
		}
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(made)
	if err != nil {
		return nil, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})
	if err := os.MkdirAll(filepath.Dir(s.pendingKeyPath()), 0o755); err != nil {
		return nil, nil, fmt.Errorf("store the key of a certificate: %w", err)
	}
	if err := atomicfile.Write(s.pendingKeyPath(), text, 0o600); err != nil {
		return nil, nil, fmt.Errorf("store the key of a certificate: %w", err)
	}
	return made, text, nil
}

// removePendingKey forgets the key of a request.
func (s *Store) removePendingKey() { _ = os.Remove(s.pendingKeyPath()) } // if this fails, the request is met again and refused or expired

// signingRequest returns the request for a key. The request's name follows from its content.
func signingRequest(key crypto.Signer, signer string, template *x509.CertificateRequest) (*certificatesv1.CertificateSigningRequest, error) {
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	if _, ok := key.(*rsa.PrivateKey); ok {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	if signer == certificatesv1.KubeletServingSignerName {
		usages = append(usages, certificatesv1.UsageServerAuth)
	} else {
		usages = append(usages, certificatesv1.UsageClientAuth)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	sum := sha512.Sum512_256(fmt.Appendf(nil, "%x %q %q %q %q %q", public, signer, template.Subject.CommonName, template.Subject.Organization,
		template.DNSNames, fmt.Sprint(template.IPAddresses)))
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer, Usages: usages,
		},
	}, nil
}

// request requests a certificate and waits for it until ctx ends. It calls waiting with the
// request's name once the apiserver has the request, with each error meanwhile, and with nil
// once that error has passed.
func (s *Store) request(ctx context.Context, of Requester, signer string, template *x509.CertificateRequest, waiting func(name string, err error)) (*Pair, error) {
	key, text, err := s.loadOrCreateKey()
	if err != nil {
		return nil, err
	}
	r, err := signingRequest(key, signer, template)
	if err != nil {
		return nil, err
	}
	if err := of.CreateSigningRequest(ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	waiting(r.Name, nil)
	cert, err := awaitCertificate(ctx, of, r.Name, func(err error) { waiting(r.Name, err) })
	var pair *Pair
	if err == nil {
		pair, err = parseIssued(cert, text, r.Name)
	}
	if _, refused := errors.AsType[*refusedError](err); refused {
		s.removePendingKey()
	}
	return pair, err
}

// parseIssued returns the issued pair, or an error if it cannot be used.
func parseIssued(cert, key []byte, name string) (*Pair, error) {
	p, err := ParsePair(cert, key)
	switch {
	case err != nil:
		return nil, &refusedError{fmt.Sprintf("what was issued for CertificateSigningRequest %s cannot be used: %v", name, err)}
	case time.Now().After(p.TLS.Leaf.NotAfter):
		return nil, &refusedError{fmt.Sprintf("what was issued for CertificateSigningRequest %s expired at %s: check the clocks of this machine and of the signer",
			name, p.TLS.Leaf.NotAfter.UTC().Format(time.RFC3339))}
	}
	return p, nil
}

// awaitCertificate follows a request until it is decided.
func awaitCertificate(parent context.Context, of Requester, name string, failing func(error)) (cert []byte, err error) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	of.FollowSigningRequest(ctx, name, func(all []*certificatesv1.CertificateSigningRequest, failure error) {
		switch {
		case ctx.Err() != nil: // it was decided
		case apierrors.IsUnauthorized(failure): // newer credentials may work
			err = failure
			stop()
		case failure != nil:
			failing(failure)
		case len(all) == 0:
			err = fmt.Errorf("the CertificateSigningRequest %s was deleted", name)
			stop()
		default:
			failing(nil)
			var done bool
			if cert, done, err = decision(all[0]); done {
				stop()
			}
		}
	})
	if cert == nil && err == nil {
		err = context.Cause(parent)
	}
	return cert, err
}

// decision reads the outcome of a request.
func decision(r *certificatesv1.CertificateSigningRequest) (cert []byte, done bool, err error) {
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return nil, true, &refusedError{fmt.Sprintf("the CertificateSigningRequest %s was denied (%.100s: %.500s)", r.Name, c.Reason, c.Message)}
		case certificatesv1.CertificateFailed:
			return nil, true, &refusedError{fmt.Sprintf("the signer cannot serve CertificateSigningRequest %s (%.100s: %.500s)", r.Name, c.Reason, c.Message)}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(r.Status.Certificate) == 0 {
		return nil, false, nil
	}
	return r.Status.Certificate, true, nil
}
