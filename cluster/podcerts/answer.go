package podcerts

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/text"
)

// maxChain bounds a certificate chain, in bytes. It is the apiserver's bound, too
// (certificates.MaxCertificateChainSize).
const maxChain = 100 << 10

// maxQuoted bounds how much of a signer's reason or message is quoted, in bytes.
const maxQuoted = 1 << 10

// answer is a signer's answer to a request. At most one of issued, refused and bad is set; none
// while the signer has not answered.
type answer struct {
	issued *issued
	// refused says that the signer has denied or failed the request, for good; state is then
	// stateDenied or stateFailed.
	refused error
	state   string
	// bad says why the issued certificate cannot be used.
	bad error
}

// issued is a certificate for a key.
type issued struct {
	// key and chain are PEM: a PKCS #8 private key, and the leaf certificate with the
	// intermediate ones.
	key, chain []byte
	// beginRefreshAt and notAfter are by the signer's clock.
	beginRefreshAt, notAfter time.Time
}

// answerOf reads the status of a request that was made with a key. The apiserver allows one of
// the three conditions at most, and only with status True.
func answerOf(r *certificatesv1.PodCertificateRequest, key *keyPair, now time.Time) answer {
	for _, c := range r.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			return answer{refused: refusal(r, &c, "denied"), state: stateDenied}
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			return answer{refused: refusal(r, &c, "failed"), state: stateFailed}
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			got, err := checkIssued(r, key, now)
			if err != nil {
				return answer{bad: fmt.Errorf("the signer's answer to PodCertificateRequest %q cannot be used: %w", r.Name, err)}
			}
			return answer{issued: got}
		}
	}
	return answer{}
}

func refusal(r *certificatesv1.PodCertificateRequest, c *metav1.Condition, verb string) error {
	return fmt.Errorf("PodCertificateRequest %q was permanently %s by the signer: reason=%q message=%q; podd does not ask again for this pod: fix the cause, then recreate the pod",
		r.Name, verb, text.Truncate(c.Reason, maxQuoted), text.Truncate(c.Message, maxQuoted))
}

// checkIssued checks the certificate that a signer has issued. The apiserver checks the same, but
// by its own clock. podd gives a container no certificate that cannot work.
func checkIssued(r *certificatesv1.PodCertificateRequest, key *keyPair, now time.Time) (*issued, error) {
	chain, leaf, err := parseChain(r.Status.CertificateChain)
	if err != nil {
		return nil, err
	}
	if of, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !of.Equal(key.public) {
		return nil, errors.New("the certificate is not for the key that this node generated")
	}
	if now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate expired at %s, and the clock of this node says %s: compare the clocks of the signer and of this node",
			leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if r.Status.BeginRefreshAt == nil {
		return nil, errors.New("it does not say when to renew the certificate (status.beginRefreshAt)")
	}
	return &issued{key: key.private, chain: chain, beginRefreshAt: r.Status.BeginRefreshAt.Time, notAfter: leaf.NotAfter}, nil
}

// parseChain reads a chain of PEM certificates, the leaf first. It returns it without headers and
// without any text between the blocks, as the API promises to pods.
func parseChain(in string) (chain []byte, leaf *x509.Certificate, err error) {
	if len(in) > maxChain {
		return nil, nil, fmt.Errorf("the certificate chain has %d KiB, more than the limit of %d KiB", len(in)>>10, maxChain>>10)
	}
	n := 0
	for block, rest := pem.Decode([]byte(in)); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != "CERTIFICATE" {
			return nil, nil, fmt.Errorf("the PEM block %d of the certificate chain is a %q, want CERTIFICATE", n, text.Truncate(block.Type, 64))
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("the certificate %d of the chain cannot be read: %w", n, err)
		}
		if leaf == nil {
			leaf = parsed
		}
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
	}
	if leaf == nil {
		return nil, nil, errors.New("the certificate chain has no certificate in PEM")
	}
	return chain, leaf, nil
}
