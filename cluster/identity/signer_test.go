package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// signer is an apiserver whose test decides about requests.
type signer struct {
	t  *testing.T
	ca tls.Certificate

	mu   sync.Mutex
	life time.Duration // of what is issued at once; 0: requests wait
	back time.Duration // by how much certificates are dated back
	// ahead is by how much the requester's clock is.
	ahead time.Duration
	deny  bool
	away  error // what requests get
	lost  error // what those get that follow a request
	// subject is for whom certificates are issued; "" for who has asked.
	subject string
	spoil   func() // has the Store refuse what comes
	all     map[string]*certificatesv1.CertificateSigningRequest
	// changed is closed and replaced when a request changes.
	changed chan struct{}
	made    []time.Time
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now(), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour), IsCA: true,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	return &signer{
		t: t, ca: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		all: map[string]*certificatesv1.CertificateSigningRequest{}, changed: make(chan struct{}),
	}
}

func (s *signer) issue(request []byte) []byte {
	block, _ := pem.Decode(request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(s.made)) + 2), Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses,
		NotBefore: time.Now().Add(-s.back - s.ahead), NotAfter: time.Now().Add(s.life - s.ahead),
	}
	if s.subject != "" {
		leaf.Subject = pkix.Name{CommonName: s.subject}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.ca.Leaf, asked.PublicKey, s.ca.PrivateKey)
	if err != nil {
		s.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (s *signer) decideLocked(r *certificatesv1.CertificateSigningRequest) {
	next := r.DeepCopy()
	switch {
	case s.deny:
		next.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "No", Message: "not you"}}
	case s.life > 0:
		next.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
		next.Status.Certificate = s.issue(r.Spec.Request)
	default:
		return
	}
	s.all[r.Name] = next
	s.tellLocked()
}

func (s *signer) tellLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes how requests are decided, also those that wait.
func (s *signer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for _, r := range s.all {
		if len(r.Status.Conditions) == 0 {
			s.decideLocked(r)
		}
	}
	s.tellLocked()
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

func (s *signer) CreateSigningRequest(_ context.Context, r *certificatesv1.CertificateSigningRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	if s.all[r.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, r.Name)
	}
	s.made = append(s.made, time.Now())
	s.all[r.Name] = r
	s.decideLocked(r)
	return nil
}

func (s *signer) FollowSigningRequest(ctx context.Context, name string, set func([]*certificatesv1.CertificateSigningRequest, error)) {
	for ctx.Err() == nil {
		s.mu.Lock()
		r, changed, lost := s.all[name], s.changed, s.lost
		s.mu.Unlock()
		if lost != nil {
			set(nil, lost)
		} else if r != nil {
			set([]*certificatesv1.CertificateSigningRequest{r}, nil)
		} else {
			set(nil, nil)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// config is a Rotation's with a signer.
func config(t *testing.T, s *signer) Config {
	t.Helper()
	return Config{
		Store: NewStore(t.TempDir(), ClientPrefix), Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Template: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n"}}
		},
		Requester: func(bool) Requester { return s }, Log: slog.New(slog.DiscardHandler),
	}
}

// running runs a Rotation for the time of a test.
func running(t *testing.T, r *Rotation) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = r.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}
