package podcerts

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
)

// server is an apiserver with PodCertificateRequests, and the signer.
type server struct {
	mu        sync.Mutex
	requests  []*certificatesv1.PodCertificateRequest
	made      int
	asked     int
	following int
	set       func([]*certificatesv1.PodCertificateRequest, error)
	err       error     // the answer to a creation
	refuse    time.Time // until when the pod is not known to be bound to the node
	// block, unless nil, holds up creations until it is closed; blocked counts those.
	block   chan struct{}
	blocked int
	// atOnce signs before a creation is answered.
	atOnce bool

	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now(), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, s.key.Public(), s.key)
	if err == nil {
		s.authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if name != "robot" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name)
	}
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "account-uid"}}, nil
}

func (s *server) CreatePodCertificateRequest(_ context.Context, r *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	s.mu.Lock()
	if block := s.block; block != nil {
		s.blocked++
		s.mu.Unlock()
		<-block
		s.mu.Lock()
	}
	s.asked++
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	if time.Now().Before(s.refuse) {
		defer s.mu.Unlock()
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "podcertificaterequests"}, "", errors.New("the pod is not running on the node"))
	}
	s.made++
	r = r.DeepCopy()
	r.Name, r.UID = fmt.Sprintf("%s%d", r.GenerateName, s.made), types.UID(fmt.Sprintf("request-%d", s.made))
	r.CreationTimestamp = metav1.Now()
	s.requests = append(s.requests, r)
	atOnce := s.atOnce
	s.mu.Unlock()
	if atOnce {
		s.put(r.Name, s.sign(r, day))
	}
	s.show()
	return r, nil
}

func (s *server) FollowPodCertificateRequests(ctx context.Context, node string, set func([]*certificatesv1.PodCertificateRequest, error)) {
	s.mu.Lock()
	s.following++
	s.set = set
	s.mu.Unlock()
	if node != "node-1" {
		set(nil, errors.New("of another node"))
	}
	s.show()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following--
	s.set = nil
}

// show has those who follow see all requests.
func (s *server) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set != nil {
		s.set(append([]*certificatesv1.PodCertificateRequest{}, s.requests...), nil)
	}
}

// answer sets the status of a request, as a signer does, and waits until everybody rests.
func (s *server) answer(name string, status certificatesv1.PodCertificateRequestStatus) {
	s.put(name, status)
	s.show()
	synctest.Wait()
}

func (s *server) put(name string, status certificatesv1.PodCertificateRequestStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.requests {
		if r.Name == name {
			r = r.DeepCopy()
			r.Status = status
			s.requests[i] = r
		}
	}
}

// drop deletes a request.
func (s *server) drop(name string) {
	s.mu.Lock()
	kept := s.requests[:0:0]
	for _, r := range s.requests {
		if r.Name != name {
			kept = append(kept, r)
		}
	}
	s.requests = kept
	s.mu.Unlock()
	s.show()
	synctest.Wait()
}

// last waits until everybody rests, and returns the newest request.
func (s *server) last(t *testing.T) *certificatesv1.PodCertificateRequest {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == 0 {
		t.Fatal("nothing is requested")
	}
	if len(s.requests) == 0 {
		return &certificatesv1.PodCertificateRequest{} // all were deleted
	}
	return s.requests[len(s.requests)-1]
}

// count waits until everybody rests, and returns how many requests were ever created.
func (s *server) count() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

const day = 24 * time.Hour

// sign issues a certificate for the key of a request, for a time.
func (s *server) sign(r *certificatesv1.PodCertificateRequest, life time.Duration) certificatesv1.PodCertificateRequestStatus {
	csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		panic(err)
	}
	return s.signKey(csr.PublicKey, life)
}

func (s *server) signKey(public crypto.PublicKey, life time.Duration) certificatesv1.PodCertificateRequestStatus {
	from := time.Now().Add(-2 * time.Minute).Truncate(time.Second)
	to := from.Add(life)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to}, s.authority, public, s.key)
	if err != nil {
		panic(err)
	}
	at := func(t time.Time) *metav1.Time { m := metav1.NewTime(t); return &m }
	return certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{condition(certificatesv1.PodCertificateRequestConditionTypeIssued, "Signed", "")},
		CertificateChain: "# leaf\n" + certificate(der) + "between\n" + certificate(s.authority.Raw),
		NotBefore:        at(from), NotAfter: at(to), BeginRefreshAt: at(from.Add(life / 2)),
	}
}

func certificate(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Comment": "x"}, Bytes: der}))
}

func condition(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func refusing(kind, reason, message string) certificatesv1.PodCertificateRequestStatus {
	return certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{condition(kind, reason, message)}}
}

// node is a Manager in a bubble, and what it has told.
type node struct {
	*testing.T
	*Manager
	s            *server
	unregistered atomic.Bool

	mu     sync.Mutex
	n      int
	events []string
	log    bytes.Buffer
}

func (n *node) Changed(pod.UID) { n.mu.Lock(); defer n.mu.Unlock(); n.n++ }

func (n *node) Event(p *v1.Pod, eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, strings.Join([]string{p.Name, eventType, reason, message}, " "))
}

// Write takes the log.
func (n *node) Write(text []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(text)
}

// takeChanges returns how often the pods were notified since it was last asked.
func (n *node) takeChanges() int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.n
	n.n = 0
	return was
}

func (n *node) takeEvents() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.events
	n.events = nil
	return all
}

// managing runs a test with a Manager in a bubble.
func managing(t *testing.T, run func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, s: newServer(t)}
		n.Manager = New(Config{
			Client: n.s, Events: n, NodeName: "node-1", Log: slog.New(slog.NewTextHandler(n, nil)),
			Node: func() *v1.Node {
				if n.unregistered.Load() {
					return nil
				}
				return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node-uid"}}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Manager.Run(ctx, n) }()
		run(n)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		n.s.mu.Lock()
		defer n.s.mu.Unlock()
		if n.s.following != 0 {
			t.Errorf("%d watches are left", n.s.following)
		}
	})
}

func web() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", Annotations: map[string]string{pod.AnnotationSource: string(pod.SourceAPIServer)}},
		Spec:       v1.PodSpec{ServiceAccountName: "robot"},
	}
}

// projection has a quick key.
func projection() *v1.PodCertificateProjection {
	return &v1.PodCertificateProjection{SignerName: "example.com/mesh", KeyType: "ECDSAP256"}
}

// get asks for the credential of web's only source.
func (n *node) get() (key, chain string, err error) {
	k, c, err := n.Credential(web(), "tls", 0, projection())
	return string(k), string(c), err
}

// has fails the test if web's credential is missing, or an error does not say the words.
func (n *node) says(words ...string) {
	n.Helper()
	_, _, err := n.get()
	n.saysOf(err, words...)
}

func (n *node) saysOf(err error, words ...string) {
	n.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			n.Errorf("got %v, want %q in it", err, w)
		}
	}
}

// issue has web's credential requested and issued.
func (n *node) issue(life time.Duration) (key, chain string) {
	n.Helper()
	_, _, _ = n.get()
	r := n.s.last(n.T)
	n.s.answer(r.Name, n.s.sign(r, life))
	key, chain, err := n.get()
	if err != nil {
		n.Fatal(err)
	}
	return key, chain
}
