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
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	all   map[string]*certificatesv1.CertificateSigningRequest
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
		r, changed := s.all[name], s.changed
		s.mu.Unlock()
		if r != nil {
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

func TestACertificateIsRenewedInTimeAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 100 * time.Hour
		cfg := config(t, s)
		var got []*Pair
		cfg.Issued = func(p *Pair) error { got = append(got, p); return nil }
		r := New(cfg, nil)
		if r.Current() != nil {
			t.Error("there is a certificate before the first")
		}
		stop := running(t, r)
		time.Sleep(1000 * time.Hour)
		stop()
		if len(got) != len(s.made) || len(got) < 10 || len(got) > 15 {
			t.Fatalf("got %d certificates of %d requests, want one each 70 to 90 hours", len(got), len(s.made))
		}
		for i := 1; i < len(s.made); i++ {
			if age := s.made[i].Sub(s.made[i-1]); age < 70*time.Hour || age > 91*time.Hour {
				t.Errorf("renewed after %s", age)
			}
		}
		if r.Current() == nil || len(r.Problems()) > 0 {
			t.Errorf("got %v, %v", r.Current(), r.Problems())
		}
		// What is on disk is what is used, in the kubelet's layout.
		stored, err := cfg.Store.Current()
		if err != nil || stored.TLS.Leaf.SerialNumber.Cmp(r.Current().Leaf.SerialNumber) != 0 {
			t.Errorf("got %v, %v", stored, err)
		}
		if _, err := os.Stat(cfg.Store.pending()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key of a request that was decided is still there: %v", err)
		}
	})
}

func TestARequestThatWaitsIsMetAgainAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		cfg := config(t, s)
		r := New(cfg, nil)
		stop := running(t, r)
		time.Sleep(48 * time.Hour)
		if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Hint, "kubectl certificate approve node-csr-") {
			t.Errorf("got %v", p)
		}
		stop()
		r = New(cfg, nil)
		running(t, r)
		time.Sleep(time.Hour)
		s.set(func() { s.life = time.Hour })
		synctest.Wait()
		if s.count() != 1 || r.Current() == nil || len(r.Problems()) > 0 {
			t.Errorf("got %d requests, %v, %v", s.count(), r.Current(), r.Problems())
		}
	})
}

func TestADeniedRequestIsNotRepeatedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.deny = true
		r := New(config(t, s), nil)
		running(t, r)
		time.Sleep(24 * time.Hour)
		if n := s.count(); n < 100 || n > 160 {
			t.Errorf("%d requests a day", n)
		}
		if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "was denied (No: not you)") {
			t.Errorf("got %v", p)
		}
		s.set(func() { s.deny, s.life = false, time.Hour })
		time.Sleep(lastRefusedRetry)
		if r.Current() == nil {
			t.Error("no certificate")
		}
	})
}

func TestACertificateThatExpiresDuringAnOutageIsReplacedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 10 * time.Hour
		cfg := config(t, s)
		var asked []bool
		cfg.Requester = func(valid bool) Requester { asked = append(asked, valid); return s }
		r := New(cfg, nil)
		stop := running(t, r)
		synctest.Wait()
		s.set(func() { s.away = errors.New("connection refused") })
		time.Sleep(20 * time.Hour)
		if r.Current() != nil {
			t.Error("an expired certificate is used")
		}
		if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "expired at") || !strings.Contains(p[0].Message, "connection refused") || p[0].Warning {
			t.Errorf("got %v", p)
		}
		s.set(func() { s.away = nil })
		time.Sleep(lastRetry)
		if r.Current() == nil || len(r.Problems()) > 0 {
			t.Errorf("got %v, %v", r.Current(), r.Problems())
		}
		stop()
		if asked[0] || !asked[1] || asked[len(asked)-1] {
			t.Errorf("asked with a valid certificate: %v, want not the first time and not the last", asked)
		}
	})
}

func TestACertificateThatIsDatedBackByMoreThanItsLifeIsNotRenewedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life, s.back = time.Minute, time.Hour
		running(t, New(config(t, s), nil))
		time.Sleep(time.Hour)
		if n := s.count(); n < 60 || n > 100 {
			t.Errorf("%d requests for certificates that are valid for a minute, want one each 42 s", n)
		}
	})
}

func TestAServingCertificateIsForTheAddressesOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 1000 * time.Hour
		cfg := config(t, s)
		cfg.Signer = certificatesv1.KubeletServingSignerName
		var mu sync.Mutex
		var now *x509.CertificateRequest
		set := func(ips ...net.IP) {
			mu.Lock()
			defer mu.Unlock()
			now = &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n"}, DNSNames: []string{"n"}, IPAddresses: ips}
		}
		cfg.Template = func() *x509.CertificateRequest { mu.Lock(); defer mu.Unlock(); return now }
		r := New(cfg, nil)
		running(t, r)
		time.Sleep(3 * time.Hour)
		if s.count() != 0 {
			t.Error("requested before there is an address")
		}
		for i, ips := range [][]net.IP{{net.IPv4(10, 0, 0, 1)}, {net.IPv4(10, 0, 0, 1), net.ParseIP("fd00::1")}, {net.IPv4(10, 0, 0, 2)}} {
			set(ips...)
			r.Wake()
			synctest.Wait()
			if c := r.Current(); s.count() != i+1 || c == nil || c.Leaf.VerifyHostname(ips[len(ips)-1].String()) != nil {
				t.Errorf("%v: got %d requests, %v", ips, s.count(), c)
			}
		}
		set(net.IPv4(10, 0, 0, 2))
		r.Wake()
		time.Sleep(24 * time.Hour)
		if s.count() != 3 {
			t.Error("requested again for the same addresses")
		}
		// While a request waits, its node gets another address: that request is of no use.
		s.set(func() { s.life = 0 })
		set(net.IPv4(10, 0, 0, 3))
		r.Wake()
		time.Sleep(time.Hour)
		set(net.IPv4(10, 0, 0, 4))
		r.Wake()
		time.Sleep(time.Minute)
		s.set(func() { s.life = time.Hour })
		synctest.Wait()
		if c := r.Current(); s.count() != 5 || c.Leaf.VerifyHostname("10.0.0.4") != nil {
			t.Errorf("got %d requests, %v", s.count(), c.Leaf.IPAddresses)
		}
	})
}

func TestWhatIsIssuedMustBeWhatWasRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = time.Hour
		cfg := config(t, s)
		other := newSigner(t)
		other.life = time.Hour
		cfg.Requester = func(bool) Requester { return forged{s} }
		r := New(cfg, nil)
		running(t, r)
		time.Sleep(time.Minute)
		if p := r.Problems(); r.Current() != nil || len(p) != 1 || !strings.Contains(p[0].Message, "cannot be used") {
			t.Errorf("got %v, %v", r.Current(), p)
		}
	})
}

// forged issues certificates for another key.
type forged struct{ *signer }

func (f forged) FollowSigningRequest(ctx context.Context, name string, set func([]*certificatesv1.CertificateSigningRequest, error)) {
	f.signer.FollowSigningRequest(ctx, name, func(all []*certificatesv1.CertificateSigningRequest, err error) {
		r := all[0].DeepCopy()
		r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.ca.Certificate[0]})
		set([]*certificatesv1.CertificateSigningRequest{r}, err)
	})
}

func TestACertificateThatIsGivenIsRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 1000 * time.Hour
		cfg := config(t, s)
		r := New(cfg, nil)
		stop := running(t, r)
		synctest.Wait()
		given := r.Pair()
		stop()
		cfg.Store = NewStore(t.TempDir(), ClientPrefix)
		for name, want := range map[string]int{"new": 2, "stored": 2} { // kubeadm's kubeconfig of a control plane
			r := New(cfg, given)
			if r.Current() == nil {
				t.Errorf("%s: it is not used meanwhile", name)
			}
			stop := running(t, r)
			time.Sleep(time.Hour)
			stop()
			if s.count() != want {
				t.Errorf("%s: got %d requests, want %d", name, s.count(), want)
			}
		}
		cfg.Once = true
		r = New(cfg, nil)
		running(t, r)
		time.Sleep(997 * time.Hour)
		if s.count() != 2 {
			t.Error("renewed without rotateCertificates")
		}
		time.Sleep(4 * time.Hour)
		if s.count() != 3 {
			t.Error("not requested, and the last has expired")
		}
	})
}

// A machine may start with a clock that is years ahead: by it, whatever is issued has expired.
func TestAClockThatIsAheadIsNoFloodOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life, s.ahead = 1000*time.Hour, 10*365*24*time.Hour
		r := New(config(t, s), nil)
		running(t, r)
		time.Sleep(24 * time.Hour)
		if n := s.count(); n < 2 || n > 160 {
			t.Errorf("%d requests a day", n)
		}
		if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "check the clocks of this machine") {
			t.Errorf("got %v", p)
		}
		s.set(func() { s.ahead = 0 })
		time.Sleep(lastRefusedRetry)
		if r.Current() == nil || len(r.Problems()) > 0 {
			t.Errorf("after the clock was set: got %v, %v", r.Current(), r.Problems())
		}
	})
}

// kubeadm has the kubeconfig name the Store's file, if there is one when the control plane
// answers: long before a controller manager has approved a request.
func TestACertificateThatIsGivenIsStoredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 1000 * time.Hour
		cfg := config(t, s)
		r := New(cfg, nil)
		stop := running(t, r)
		synctest.Wait()
		given := r.Pair()
		stop()
		s.set(func() { s.life = 0 }) // nobody approves
		for keep, want := range map[bool]error{false: os.ErrNotExist, true: nil} {
			cfg.Store, cfg.KeepInitial = NewStore(t.TempDir(), ClientPrefix), keep
			r := New(cfg, given)
			stop := running(t, r)
			synctest.Wait()
			stored, err := cfg.Store.Current()
			if !errors.Is(err, want) || err == nil && stored.TLS.Leaf.SerialNumber.Cmp(given.TLS.Leaf.SerialNumber) != 0 {
				t.Errorf("keep %t: got %v, want %v", keep, err, want)
			}
			if len(r.Problems()) != 1 {
				t.Errorf("keep %t: it is not renewed: %v", keep, r.Problems())
			}
			stop()
		}
	})
}

// A bootstrap token may expire while a request waits: the same request is then followed by
// another one.
func TestARequestIsFollowedByNewCredentialsWhenTheOldAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		cfg := config(t, s)
		var refused []string
		cfg.Requester = func(bool) Requester {
			if len(refused) < 2 {
				return unauthorized{s, func(name string) { refused = append(refused, name) }}
			}
			return s
		}
		r := New(cfg, nil)
		stop := running(t, r)
		time.Sleep(time.Minute)
		s.set(func() { s.life = time.Hour })
		synctest.Wait()
		if r.Current() == nil || s.count() != 1 {
			t.Errorf("got %d requests, %v, %v", s.count(), r.Current(), r.Problems())
		}
		stop()
		if len(refused) != 2 || refused[0] != refused[1] {
			t.Errorf("followed were %q", refused)
		}
	})
}

// unauthorized accepts requests, and refuses to show what becomes of them.
type unauthorized struct {
	*signer
	told func(name string)
}

func (u unauthorized) FollowSigningRequest(ctx context.Context, name string, set func([]*certificatesv1.CertificateSigningRequest, error)) {
	u.told(name)
	set(nil, apierrors.NewUnauthorized("expired"))
	<-ctx.Done()
}

// The files are upstream's: another agent goes on with them.
func TestTheStoreHasTheKubeletsFiles(t *testing.T) {
	dir := t.TempDir()
	store := NewStore(dir, ClientPrefix)
	if _, err := store.Current(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty: got %v", err)
	}
	s := newSigner(t)
	s.life = time.Hour
	key, text, err := store.key()
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := store.key()
	if err != nil || !again.Public().(*ecdsa.PublicKey).Equal(key.Public()) {
		t.Errorf("another key, %v", err)
	}
	r, err := signingRequest(key, certificatesv1.KubeAPIServerClientKubeletSignerName, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ParsePair(append([]byte("text\n"), s.issue(r.Spec.Request)...), text)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for i := range 2 {
		if err := store.Update(pair, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	target, err := os.Readlink(filepath.Join(dir, "kubelet-client-current.pem"))
	if err != nil || target != filepath.Join(dir, "kubelet-client-2026-01-02-03-04-06.pem") {
		t.Errorf("got %q, %v", target, err)
	}
	if _, err := tls.LoadX509KeyPair(store.Path(), store.Path()); err != nil {
		t.Errorf("the file is not a pair: %v", err)
	}
	if got, err := store.Current(); err != nil || got.TLS.Leaf.Subject.CommonName != "system:node:n" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := errors.Join(os.Remove(store.Path()), os.WriteFile(store.Path(), []byte("precious"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(pair, at); err == nil || !strings.Contains(err.Error(), "is no link") {
		t.Errorf("a file in the place of the link: got %v", err)
	}
}
