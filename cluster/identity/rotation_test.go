package identity

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
		if _, err := os.Stat(cfg.Store.pendingKeyPath()); !errors.Is(err, os.ErrNotExist) {
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
		time.Sleep(refusalBackoff.Max)
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
		time.Sleep(failureBackoff.Max)
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
		if n := s.count(); n < 80 || n > 90 {
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
		cfg.NoRenewal = true
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
		time.Sleep(refusalBackoff.Max)
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
			cfg.Store, cfg.StoreInitial = NewStore(t.TempDir(), ClientPrefix), keep
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
