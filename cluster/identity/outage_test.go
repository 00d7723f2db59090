package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// issuedFor is a pair that a signer issues for a name, without a Rotation.
func issuedFor(t *testing.T, s *signer, template *x509.CertificateRequest) *Pair {
	t.Helper()
	store := NewStore(t.TempDir(), ClientPrefix)
	key, text, err := store.loadOrCreateKey()
	if err != nil {
		t.Fatal(err)
	}
	r, err := signingRequest(key, certificatesv1.KubeAPIServerClientKubeletSignerName, template)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePair(s.issue(r.Spec.Request), text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ofNode(name string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + name}}
}

// gathered is the value of a metric of one certificate; NaN for none.
func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		switch m := f.Metric[0]; {
		case f.GetName() != name:
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		case m.Counter != nil:
			return m.Counter.GetValue()
		default:
			return m.Histogram.GetSampleSum()
		}
	}
	return math.NaN()
}

// Somebody else renews it, a cluster's tool for example: what podd had asked for is needless.
func TestACertificateThatSomebodyElseHasPutThereIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 1000 * time.Hour
		given := issuedFor(t, s, ofNode("n"))
		s.life = 0 // nobody approves
		cfg := config(t, s)
		r := New(cfg, nil)
		running(t, r)
		time.Sleep(time.Hour)
		if r.Current() != nil || len(r.Problems()) != 1 {
			t.Fatalf("got %v, %v", r.Current(), r.Problems())
		}
		r.Adopt(given)
		synctest.Wait()
		if r.Pair() != given || len(r.Problems()) > 0 {
			t.Errorf("got %v, %v; want the pair that was given and no problem", r.Pair(), r.Problems())
		}
		// The request that waited is not followed any more: its answer changes nothing.
		s.set(func() { s.life = 100 * time.Hour })
		time.Sleep(690 * time.Hour)
		if r.Pair() != given || s.count() != 1 {
			t.Errorf("after 690 h of 1000: %d requests, or another certificate", s.count())
		}
		time.Sleep(220 * time.Hour)
		if r.Pair() == given {
			t.Error("it is not renewed in time")
		}
	})
}

// The next outage begins with quick attempts again.
func TestTheFirstAttemptsOfAnOutageAreQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life, s.away = 100*time.Hour, errors.New("connection refused")
		cfg := config(t, s)
		var mu sync.Mutex
		var tries []time.Time
		cfg.Requester = func(bool) Requester { mu.Lock(); defer mu.Unlock(); tries = append(tries, time.Now()); return s }
		r := New(cfg, nil)
		stop := running(t, r)
		gaps := func() (all []time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			for i := 1; i < len(tries); i++ {
				all = append(all, tries[i].Sub(tries[i-1]))
			}
			return all
		}
		time.Sleep(2 * time.Minute)
		want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 32 * time.Second}
		if got := gaps(); !slices.Equal(got, want) {
			t.Errorf("the first outage: tried after %v, want %v", got, want)
		}
		s.set(func() { s.away = nil })
		time.Sleep(time.Minute)
		if r.Current() == nil {
			t.Fatal("no certificate")
		}
		s.set(func() { s.away = errors.New("connection refused") })
		time.Sleep(69 * time.Hour)
		mu.Lock()
		tries = nil
		mu.Unlock()
		time.Sleep(21*time.Hour + 30*time.Minute) // the renewal comes due before 90 h of 100
		stop()
		if got := gaps(); len(got) < 5 || !slices.Equal(got[:5], want[:5]) {
			t.Errorf("the second outage: tried after %v, want %v and so on", got, want)
		}
	})
}

// Somebody has decided: a new request every few seconds would only fill the cluster with them.
func TestWhatWasRefusedIsRequestedAgainEverLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.deny = true
		running(t, New(config(t, s), nil))
		time.Sleep(50 * time.Minute)
		var got []time.Duration
		for i := 1; i < s.count(); i++ {
			got = append(got, s.made[i].Sub(s.made[i-1]))
		}
		want := []time.Duration{32 * time.Second, 64 * time.Second, 128 * time.Second, 256 * time.Second, 512 * time.Second, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}
		if !slices.Equal(got, want) {
			t.Errorf("requested again after %v, want %v", got, want)
		}
	})
}

// What people see while there is no certificate, and whether podd works meanwhile.
func TestWhatIsToldWhileThereIsNoNewCertificate(t *testing.T) {
	const retries, decided = "podd tries again by itself", "ask whoever approves certificates of this cluster"
	for name, c := range map[string]struct {
		valid         bool // is there one that is
		change        func(s *signer)
		message, hint string
	}{
		"away, without any":  {false, func(s *signer) { s.away = errors.New("connection refused") }, "request a certificate: connection refused", retries},
		"away, with one":     {true, func(s *signer) { s.away = errors.New("connection refused") }, "request a certificate: connection refused", retries},
		"denied":             {true, func(s *signer) { s.deny = true }, "was denied (No: not you)", decided},
		"it waits":           {true, func(s *signer) { s.life = 0 }, "waiting until the CertificateSigningRequest node-csr-", "approve it, if no controller does: kubectl certificate approve node-csr-"},
		"it is out of sight": {true, func(s *signer) { s.life, s.lost = 0, errors.New("connection lost") }, "and its certificate issued: connection lost", "kubectl certificate approve node-csr-"},
		"it is for another":  {true, func(s *signer) { s.subject = "system:node:other" }, `the signer issued a certificate for "CN=system:node:other", [], [], which is not what was requested`, decided},
		"it cannot be saved": {true, func(s *signer) { s.spoil() }, "store certificate: ", retries},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t)
				s.life = 1000 * time.Hour
				cfg := config(t, s)
				cfg.Store = NewStore(filepath.Join(dir, "pki"), ClientPrefix)
				var initial *Pair
				if c.valid {
					initial = issuedFor(t, s, ofNode("n"))
				}
				s.spoil = func() { // a file that is no link is in the link's place
					if err := errors.Join(os.MkdirAll(filepath.Dir(cfg.Store.Path()), 0o755), os.WriteFile(cfg.Store.Path(), nil, 0o600)); err != nil {
						t.Error(err)
					}
				}
				c.change(s)
				var log bytes.Buffer
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
				reg := prometheus.NewRegistry()
				cfg.Metrics = ClientMetrics(reg)
				r := New(cfg, initial)
				stop := running(t, r)
				began := time.Now()
				time.Sleep(time.Minute)
				all := r.Problems()
				if len(all) != 1 || !strings.Contains(all[0].Message, c.message) || !strings.Contains(all[0].Hint, c.hint) || all[0].Warning != c.valid || all[0].Origin != cfg.Store.Path() {
					t.Fatalf("got %+v, want %q with the hint %q", all, c.message, c.hint)
				}
				if (r.Current() != nil) != c.valid {
					t.Errorf("got %v, want one: %t", r.Current(), c.valid)
				}
				if got := gathered(t, reg, "kubelet_certificate_manager_client_expiration_renew_errors"); (got > 0) == strings.Contains(c.hint, "kubectl") {
					t.Errorf("%v failures are counted", got)
				}
				stop()
				if got := r.Problems(); got[0].Message != all[0].Message {
					t.Errorf("the end of podd is told as a problem: %v", got)
				}
				if strings.HasPrefix(name, "away") && (!all[0].Since.Equal(began) || strings.Count(log.String(), "there is no new certificate yet") != 1) {
					t.Errorf("since %v, want %v; the log has\n%s", all[0].Since, began, &log)
				}
			})
		})
	}
}

// A certificate that was refused asks for another key: the same request would be met again.
func TestTheKeyOfACertificateForAnotherNodeIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life, s.subject = time.Hour, "system:node:other"
		cfg := config(t, s)
		r := New(cfg, nil)
		running(t, r)
		time.Sleep(time.Second)
		if _, err := os.Stat(cfg.Store.pendingKeyPath()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key is still there: %v", err)
		}
		time.Sleep(refusalBackoff.Initial)
		if s.count() != 2 {
			t.Errorf("%d requests, want a second one", s.count())
		}
	})
}

// Whoever is to use the new certificate cannot: it is stored all the same.
func TestACertificateThatItsUserRefusesIsToldAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 1000 * time.Hour
		cfg := config(t, s)
		cfg.Issued = func(*Pair) error { return errors.New("no such kubeconfig") }
		r := New(cfg, nil)
		running(t, r)
		time.Sleep(time.Hour)
		all := r.Problems()
		if len(all) != 1 || all[0].Message != "the new certificate cannot be used: no such kubeconfig" || all[0].Hint != "restart podd once that is right" {
			t.Errorf("got %v", all)
		}
		if _, err := cfg.Store.Current(); err != nil || r.Current() == nil || s.count() != 1 {
			t.Errorf("got %v, %v after %d requests; want that it is stored and used after one", r.Current(), err, s.count())
		}
	})
}

// A node that was off for long has a certificate that is none any more.
func TestAnExpiredCertificateOfTheStoreIsNotUsedButToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = time.Hour
		cfg := config(t, s)
		if err := cfg.Store.Update(issuedFor(t, s, ofNode("n")), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		s.life, s.away = 1000*time.Hour, errors.New("connection refused")
		reg := prometheus.NewRegistry()
		cfg.Metrics = ClientMetrics(reg)
		r := New(cfg, nil)
		if got := gathered(t, reg, "kubelet_certificate_manager_client_ttl_seconds"); got != -3600 {
			t.Errorf("it expired %v seconds ago, want 3600", -got)
		}
		running(t, r)
		synctest.Wait()
		if p := r.Problems(); r.Current() != nil || len(p) != 1 || !strings.HasPrefix(p[0].Message, "the certificate expired at ") || p[0].Warning {
			t.Errorf("got %v, %v", r.Current(), p)
		}
		// A pair that is given goes first, and one of the store that is valid before that.
		given, stored := issuedFor(t, s, ofNode("n")), issuedFor(t, s, ofNode("n"))
		if r := New(cfg, given); r.Pair() != given {
			t.Error("the pair that was given is not used")
		}
		if err := cfg.Store.Update(stored, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := New(cfg, given).Pair(); got.TLS.Leaf.SerialNumber.Cmp(stored.TLS.Leaf.SerialNumber) != 0 || got == given {
			t.Error("the pair that is stored is not used")
		}
	})
}

func TestTheMetricsOfARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.life = 100 * time.Hour
		cfg := config(t, s)
		reg := prometheus.NewRegistry()
		cfg.Metrics = ServingMetrics(reg)
		r := New(cfg, nil)
		running(t, r)
		synctest.Wait()
		if got := gathered(t, reg, "kubelet_certificate_manager_server_ttl_seconds"); got != 360000 {
			t.Errorf("it is valid for %v seconds, want 360000", got)
		}
		if got := gathered(t, reg, "kubelet_certificate_manager_server_rotation_seconds"); got != 0 {
			t.Errorf("after the first certificate there was one of %v seconds before", got)
		}
		time.Sleep(91 * time.Hour)
		got, age := gathered(t, reg, "kubelet_certificate_manager_server_rotation_seconds"), s.made[1].Sub(s.made[0]).Seconds()
		if math.Abs(got-age) > 1 { // certificates have seconds
			t.Errorf("the first one was replaced after %v seconds, want %v", got, age)
		}
	})
}

func TestRunReturnsWhyItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := New(config(t, newSigner(t)), nil).Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// The kubeconfig's pair is used though it cannot be stored, and the log says so.
func TestAGivenCertificateThatCannotBeStoredIsUsed(t *testing.T) {
	for name, spoilt := range map[string]bool{"it can": false, "it cannot": true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSigner(t)
			s.life = 1000 * time.Hour
			given := issuedFor(t, s, ofNode("n"))
			s.life = 0 // nobody approves
			cfg := config(t, s)
			cfg.StoreInitial = true
			var log bytes.Buffer
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			if spoilt {
				if err := os.WriteFile(cfg.Store.Path(), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := New(cfg, given)
			running(t, r)
			synctest.Wait()
			if r.Pair() != given || strings.Contains(log.String(), "cannot store the kubeconfig's client certificate") != spoilt {
				t.Errorf("%s: the log has %s", name, &log)
			}
		})
	}
}

// A request that waits goes on waiting when the node is told again what it knows, and is
// given up when that is not known any more.
func TestWhenARequestThatWaitsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		cfg := config(t, s)
		var mu sync.Mutex
		now := ofNode("n")
		set := func(r *Rotation, next *x509.CertificateRequest) {
			mu.Lock()
			now = next
			mu.Unlock()
			r.Wake()
			synctest.Wait()
		}
		cfg.Template = func() *x509.CertificateRequest { mu.Lock(); defer mu.Unlock(); return now }
		asked := 0
		cfg.Requester = func(bool) Requester { asked++; return s }
		r := New(cfg, nil)
		running(t, r)
		synctest.Wait()
		for _, step := range []struct {
			name string
			next *x509.CertificateRequest
			want int // attempts
		}{
			{"the same", ofNode("n"), 1},
			{"an address", &x509.CertificateRequest{Subject: ofNode("n").Subject, IPAddresses: []net.IP{{10, 0, 0, 1}}}, 2},
			{"the same address", &x509.CertificateRequest{Subject: ofNode("n").Subject, IPAddresses: []net.IP{{10, 0, 0, 1}}}, 2},
			{"a name", &x509.CertificateRequest{Subject: ofNode("n").Subject, DNSNames: []string{"n"}, IPAddresses: []net.IP{{10, 0, 0, 1}}}, 3},
			{"another node", &x509.CertificateRequest{Subject: ofNode("m").Subject, DNSNames: []string{"n"}, IPAddresses: []net.IP{{10, 0, 0, 1}}}, 4},
			{"nothing", nil, 4},
			{"something again", ofNode("n"), 5},
		} {
			set(r, step.next)
			if asked != step.want {
				t.Errorf("after %s: %d attempts, want %d", step.name, asked, step.want)
			}
		}
	})
}

// A certificate must say all that its node needs, and may say more.
func TestWhichCertificatesAreEnough(t *testing.T) {
	needs := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}, DNSNames: []string{"n", "n.local"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1), net.ParseIP("fd00::1")}}
	for name, c := range map[string]struct {
		change func(c *x509.Certificate)
		want   bool
	}{
		"all of it": {func(*x509.Certificate) {}, true},
		"more": {func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = append(c.DNSNames, "more"), append(c.IPAddresses, net.IPv4(10, 0, 0, 9))
			c.Subject.Organization = append(c.Subject.Organization, "more")
		}, true},
		"an address in its short form": {func(c *x509.Certificate) { c.IPAddresses[0] = net.IP{10, 0, 0, 1} }, true},
		"another name":                 {func(c *x509.Certificate) { c.Subject.CommonName = "system:node:m" }, false},
		"no group":                     {func(c *x509.Certificate) { c.Subject.Organization = nil }, false},
		"a DNS name less":              {func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, false},
		"an address less":              {func(c *x509.Certificate) { c.IPAddresses = c.IPAddresses[:1] }, false},
	} {
		have := &x509.Certificate{Subject: pkix.Name{CommonName: needs.Subject.CommonName, Organization: slices.Clone(needs.Subject.Organization)}, DNSNames: slices.Clone(needs.DNSNames), IPAddresses: slices.Clone(needs.IPAddresses)}
		c.change(have)
		if got := satisfies(have, needs); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// What cannot be requested is told, and no request is made of it.
func TestWhatCannotBeRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			spoil    bool
			template *x509.CertificateRequest
			want     string
		}{
			"no key":       {true, ofNode("n"), "store the key of a certificate: "},
			"no such name": {false, &x509.CertificateRequest{DNSNames: []string{"nöde"}}, "make a certificate request: "},
		} {
			s := newSigner(t)
			s.life = time.Hour
			dir := filepath.Join(t.TempDir(), "pki")
			if c.spoil {
				if err := os.WriteFile(dir, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pair, err := NewStore(dir, ClientPrefix).request(t.Context(), s, certificatesv1.KubeAPIServerClientKubeletSignerName, c.template, func(string, error) {})
			if pair != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) || s.count() != 0 {
				t.Errorf("%s: got %v, %v after %d requests; want %q", name, pair, err, s.count(), c.want)
			}
		}
	})
}
