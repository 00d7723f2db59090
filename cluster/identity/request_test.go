package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newKeys(t *testing.T) (elliptical, old crypto.Signer) {
	t.Helper()
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old, err = rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return elliptical, old
}

// TestWhatIsRequested: upstream's approvers accept these usages and no others, and a request
// that asks for something else has another name.
func TestWhatIsRequested(t *testing.T) {
	elliptical, old := newKeys(t)
	const client, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	template := func(change func(r *x509.CertificateRequest)) *x509.CertificateRequest {
		r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}, DNSNames: []string{"n"}, IPAddresses: []net.IP{{10, 0, 0, 1}}}
		change(r)
		return r
	}
	same := func(*x509.CertificateRequest) {}
	names := map[string]bool{}
	for _, c := range []struct {
		key    crypto.Signer
		signer string
		change func(r *x509.CertificateRequest)
		usages []certificatesv1.KeyUsage
	}{
		{elliptical, client, same, []certificatesv1.KeyUsage{"digital signature", "client auth"}},
		{elliptical, serving, same, []certificatesv1.KeyUsage{"digital signature", "server auth"}},
		{old, client, same, []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"}},
		{elliptical, client, func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:m" }, nil},
		{elliptical, client, func(r *x509.CertificateRequest) { r.Subject.Organization = nil }, nil},
		{elliptical, client, func(r *x509.CertificateRequest) { r.DNSNames = []string{"m"} }, nil},
		{elliptical, client, func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{10, 0, 0, 2}} }, nil},
	} {
		r, err := signingRequest(c.key, c.signer, template(c.change))
		if err != nil {
			t.Fatal(err)
		}
		again, err := signingRequest(c.key, c.signer, template(c.change))
		if err != nil || again.Name != r.Name || names[r.Name] || !strings.HasPrefix(r.Name, "node-csr-") {
			t.Errorf("%+v: names %s and %s, %v", c.usages, r.Name, again.Name, err)
		}
		names[r.Name] = true
		if c.usages != nil && !slices.Equal(r.Spec.Usages, c.usages) || r.Spec.SignerName != c.signer {
			t.Errorf("got usages %q of %s, want %q", r.Spec.Usages, r.Spec.SignerName, c.usages)
		}
		block, _ := pem.Decode(r.Spec.Request)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || asked.CheckSignature() != nil || asked.Subject.CommonName != template(c.change).Subject.CommonName {
			t.Errorf("got %+v, %v", asked, err)
		}
	}
}

// TestWhatBecomesOfARequest: a certificate without an approval is none.
func TestWhatBecomesOfARequest(t *testing.T) {
	is := func(kinds ...certificatesv1.RequestConditionType) (all []certificatesv1.CertificateSigningRequestCondition) {
		for _, k := range kinds {
			all = append(all, certificatesv1.CertificateSigningRequestCondition{Type: k, Status: v1.ConditionTrue, Reason: "Why", Message: "because"})
		}
		return all
	}
	for what, c := range map[string]struct {
		conditions  []certificatesv1.CertificateSigningRequestCondition
		certificate string
		done        bool
		err         string
	}{
		"nothing yet":                {nil, "", false, ""},
		"approved":                   {is(certificatesv1.CertificateApproved), "", false, ""},
		"approved and issued":        {is(certificatesv1.CertificateApproved), "pem", true, ""},
		"issued without an approval": {nil, "pem", false, ""},
		"denied":                     {is(certificatesv1.CertificateDenied), "pem", true, "the CertificateSigningRequest csr was denied (Why: because)"},
		"approved, then failed":      {is(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed), "", true, "the signer cannot serve CertificateSigningRequest csr (Why: because)"},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}, Status: certificatesv1.CertificateSigningRequestStatus{Conditions: c.conditions, Certificate: []byte(c.certificate)}}
		cert, done, err := decision(r)
		if done != c.done || (len(cert) > 0) != (c.done && c.err == "") || (err != nil) != (c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %q, %t, %v", what, cert, done, err)
		}
		if _, refused := errors.AsType[*refusedError](err); refused != (c.err != "") {
			t.Errorf("%s: a refusal: %t", what, refused)
		}
	}
}

// follower answers each request by what tell tells.
type follower struct {
	create error
	tell   func(set func([]*certificatesv1.CertificateSigningRequest, error))
}

func (f follower) CreateSigningRequest(context.Context, *certificatesv1.CertificateSigningRequest) error {
	return f.create
}

func (f follower) FollowSigningRequest(ctx context.Context, _ string, set func([]*certificatesv1.CertificateSigningRequest, error)) {
	f.tell(set)
	<-ctx.Done()
}

// TestARequestIsFollowedUntilItIsDecided, and what goes wrong meanwhile is told, and that it
// is over.
func TestARequestIsFollowedUntilItIsDecided(t *testing.T) {
	away := errors.New("connection refused")
	waiting := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}}
	denied := waiting.DeepCopy()
	denied.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n"}}
	for what, c := range map[string]struct {
		create error
		tells  func(set func([]*certificatesv1.CertificateSigningRequest, error))
		told   []error
		err    string
		kept   bool // the key
	}{
		"away, then denied": {nil, func(set func([]*certificatesv1.CertificateSigningRequest, error)) {
			set(nil, away)
			set([]*certificatesv1.CertificateSigningRequest{waiting}, nil)
			set([]*certificatesv1.CertificateSigningRequest{denied}, nil)
			set(nil, away) // nobody listens any more
		}, []error{nil, away, nil, nil}, "was denied", false},
		"deleted": {nil, func(set func([]*certificatesv1.CertificateSigningRequest, error)) { set(nil, nil) }, []error{nil}, "was deleted", true},
		"no longer authorized": {nil, func(set func([]*certificatesv1.CertificateSigningRequest, error)) {
			set(nil, apierrors.NewUnauthorized("who?"))
		},
			[]error{nil}, "who?", true},
		"there already": {apierrors.NewAlreadyExists(certificatesv1.Resource("csr"), "csr"), func(set func([]*certificatesv1.CertificateSigningRequest, error)) {
			set([]*certificatesv1.CertificateSigningRequest{denied}, nil)
		}, []error{nil, nil}, "was denied", false},
		"not taken": {away, func(func([]*certificatesv1.CertificateSigningRequest, error)) {}, nil, "request a certificate: connection refused", true},
		"given up":  {nil, func(func([]*certificatesv1.CertificateSigningRequest, error)) {}, []error{nil}, "context deadline exceeded", true},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := NewStore(dir, ClientPrefix)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var told []error
				began := time.Now()
				pair, err := s.request(ctx, follower{c.create, c.tells}, certificatesv1.KubeAPIServerClientKubeletSignerName, template, func(name string, err error) {
					if !strings.HasPrefix(name, "node-csr-") {
						t.Errorf("told of %q", name)
					}
					told = append(told, err)
				})
				if pair != nil || err == nil || !strings.Contains(err.Error(), c.err) || !slices.Equal(told, c.told) {
					t.Errorf("got %v, %v; told %v, want %v", pair, err, told, c.told)
				}
				if took := time.Since(began); took != 0 && what != "given up" {
					t.Errorf("it was waited for %s after it was decided", took)
				}
				if _, err := os.Stat(s.pendingKeyPath()); (err == nil) != c.kept {
					t.Errorf("the key: %v", err)
				}
			})
		})
	}
}

// TestAKeyIsOnDiskForRootAlone before its request is made, and used again; what is no key is
// replaced.
func TestAKeyIsOnDiskForRootAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s := NewStore(dir, ClientPrefix)
	first, text, err := s.loadOrCreateKey()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{s.pendingKeyPath(): 0o600, filepath.Dir(s.pendingKeyPath()): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, want)
		}
	}
	second, again, err := s.loadOrCreateKey()
	if err != nil || !first.(*ecdsa.PrivateKey).Equal(second) || string(text) != string(again) {
		t.Errorf("another key: %v", err)
	}
	for _, damaged := range []string{"", "no key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")}))} {
		if err := os.WriteFile(s.pendingKeyPath(), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if made, _, err := s.loadOrCreateKey(); err != nil || first.(*ecdsa.PrivateKey).Equal(made) {
			t.Errorf("after %q: got %v", damaged, err)
		}
	}
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.loadOrCreateKey(); err == nil || !strings.HasPrefix(err.Error(), "store the key of a certificate: ") {
		t.Errorf("without a directory: got %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.MkdirAll(filepath.Join(s.pendingKeyPath(), "in the way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.loadOrCreateKey(); err == nil || !strings.HasPrefix(err.Error(), "store the key of a certificate: ") {
		t.Errorf("with a directory in its place: got %v", err)
	}
}

func TestTheMetricsOfBothCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		client, serving := ClientMetrics(reg), ServingMetrics(reg)
		var none *Metrics
		none.expires(time.Now())
		none.failed()
		none.rotated(time.Hour)
		client.rotated(time.Hour) // which has no such metric
		client.expires(time.Now().Add(90 * time.Second))
		client.failed()
		serving.failed()
		serving.failed()
		serving.rotated(2 * time.Hour)
		time.Sleep(100 * time.Second)
		want := `
# HELP kubelet_certificate_manager_client_expiration_renew_errors Counter of certificate renewal errors.
# TYPE kubelet_certificate_manager_client_expiration_renew_errors counter
kubelet_certificate_manager_client_expiration_renew_errors 1
# HELP kubelet_certificate_manager_client_ttl_seconds Gauge of the TTL (time-to-live) of the client certificate, in seconds; negative if it has expired, +Inf if there is none.
# TYPE kubelet_certificate_manager_client_ttl_seconds gauge
kubelet_certificate_manager_client_ttl_seconds -10
# HELP kubelet_certificate_manager_server_ttl_seconds Gauge of the TTL (time-to-live) of the serving certificate, in seconds; negative if it has expired, +Inf if there is none.
# TYPE kubelet_certificate_manager_server_ttl_seconds gauge
kubelet_certificate_manager_server_ttl_seconds +Inf
# HELP kubelet_server_expiration_renew_errors Counter of certificate renewal errors.
# TYPE kubelet_server_expiration_renew_errors counter
kubelet_server_expiration_renew_errors 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_certificate_manager_client_expiration_renew_errors",
			"kubelet_certificate_manager_client_ttl_seconds", "kubelet_certificate_manager_server_ttl_seconds", "kubelet_server_expiration_renew_errors"); err != nil {
			t.Error(err)
		}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if h := f.Metric[0].GetHistogram(); h != nil && (h.GetSampleCount() != 1 || h.GetSampleSum() != 7200) {
				t.Errorf("%s: %v", f.GetName(), h)
			}
		}
	})
}
