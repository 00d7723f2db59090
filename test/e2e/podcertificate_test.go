package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/test/cluster"
)

// certified is a pod with a certificate of a signer: in one file, and with another key in two. It
// copies them out as long as it runs.
const certified = `
apiVersion: v1
kind: Pod
metadata: {name: ${NAME}}
spec:
  serviceAccountName: robot
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do for f in bundle key chain; do
      cat /tls/..data/$f > /out/.${NAME}-$f && mv /out/.${NAME}-$f /out/${NAME}-$f; done; : > /out/${NAME}; sleep 0.05; done"]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: tls, mountPath: /tls}
  volumes:
  - {name: out, hostPath: {path: ${OUT}, type: Directory}}
  - name: tls
    projected:
      sources:
      - podCertificate: {signerName: example.com/${SIGNER}, keyType: ED25519, maxExpirationSeconds: 7200, credentialBundlePath: bundle, userAnnotations: {example.com/why: ${NAME}}}
      - podCertificate: {signerName: example.com/${SIGNER}, keyType: ECDSAP256, keyPath: key, certificateChainPath: chain}
`

func (m *member) certified(name, signer string) string {
	return strings.NewReplacer("${NAME}", name, "${SIGNER}", signer).Replace(m.vars().Replace(certified))
}

// podSigner is a signer of the cluster. It signs for example.com/good, and denies what is for
// example.com/strict; nobody answers for any other.
type podSigner struct {
	m         *member
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newPodSigner(m *member) *podSigner {
	m.Helper()
	s := &podSigner{m: m}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		m.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "good"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, s.key.Public(), s.key)
	if err == nil {
		s.authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		m.Fatal(err)
	}
	return s
}

// run answers requests until ctx ends.
func (s *podSigner) run(ctx context.Context) error {
	var failed error
	err := s.m.server.Client().Follow(ctx, "/apis/certificates.k8s.io/v1/podcertificaterequests", func(event string, object json.RawMessage) bool {
		var r certificatesv1.PodCertificateRequest
		if failed = json.Unmarshal(object, &r); failed != nil || event != "ADDED" || len(r.Status.Conditions) > 0 {
			return failed == nil
		}
		failed = s.answer(ctx, &r)
		return failed == nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(err, failed)
}

func (s *podSigner) answer(ctx context.Context, r *certificatesv1.PodCertificateRequest) error {
	condition := metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}
	switch r.Spec.SignerName {
	case "example.com/strict":
		condition.Type, condition.Reason, condition.Message = "Denied", "NotWelcome", "robots get nothing here"
	case "example.com/good":
		condition.Type, condition.Reason, condition.Message = "Issued", "Signed", "for "+r.Spec.UnverifiedUserAnnotations["example.com/why"]
		csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err == nil {
			err = csr.CheckSignature()
		}
		if err != nil {
			return err
		}
		from := time.Now().Add(-2 * time.Minute).Truncate(time.Second)
		to := from.Add(time.Duration(*r.Spec.MaxExpirationSeconds) * time.Second)
		leaf := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: r.Spec.PodName}, DNSNames: []string{"example.com"}, NotBefore: from, NotAfter: to}
		der, err := x509.CreateCertificate(rand.Reader, leaf, s.authority, csr.PublicKey, s.key)
		if err != nil {
			return err
		}
		for _, each := range [][]byte{der, s.authority.Raw} {
			r.Status.CertificateChain += "# of a signer\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: each}))
		}
		r.Status.NotBefore, r.Status.NotAfter, r.Status.BeginRefreshAt = &metav1.Time{Time: from}, &metav1.Time{Time: to}, &metav1.Time{Time: to.Add(-30 * time.Minute)}
	default:
		return nil
	}
	r.Status.Conditions = []metav1.Condition{condition}
	o := cluster.Object{"kind": "PodCertificateRequest", "metadata": map[string]any{"name": r.Name, "namespace": r.Namespace}}
	return s.m.server.Client().PutStatus(ctx, o, r)
}

// pair waits until a container has both, for one key, and returns the leaf certificate. key and
// chain name the container's files, which may be one.
func (s *podSigner) pair(key, chain string, want func(leaf *x509.Certificate) error) *x509.Certificate {
	s.m.Helper()
	var leaf *x509.Certificate
	s.m.eventually("a container has a certificate in "+chain, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(s.m.out, chain))
		private, err2 := os.ReadFile(filepath.Join(s.m.out, key))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(text, private)
		if err != nil {
			return err
		}
		authorities := x509.NewCertPool()
		authorities.AddCert(s.authority)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: authorities, DNSName: "example.com"}); err != nil {
			return err
		}
		if strings.Contains(string(text), "#") || len(pair.Certificate) != 2 {
			return fmt.Errorf("got %d certificates in %q", len(pair.Certificate), text)
		}
		leaf = pair.Leaf
		return want(leaf)
	})
	return leaf
}

func TestPodCertificatesReachAPodAndAreNewAfterARestartOfPodd(t *testing.T) {
	m := join(t)
	m.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}")
	m.bind(m.certified("web", "good"))
	// The signer does not run yet.
	m.told("web", "FailedMount", `podCertificate of signer "example.com/good": the signer has not answered PodCertificateRequest "req-`, "check that a signer of this name runs")
	m.shown("web", "waiting for its volumes", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w == nil || w.Reason != "ContainerCreating" {
				return fmt.Errorf("its container is %+v", c.State)
			}
		}
		return nil
	})
	if m.marked("web") {
		t.Error("it runs without its certificates")
	}
	ctx, stop := context.WithCancel(t.Context())
	signer, done := newPodSigner(m), make(chan error, 1)
	go func() { done <- signer.run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	some := func(*x509.Certificate) error { return nil }
	first := signer.pair("web-bundle", "web-bundle", some)
	if first.NotAfter.Sub(first.NotBefore) != 2*time.Hour || first.Subject.CommonName != "web" {
		t.Errorf("got a certificate of %q for %v", first.Subject, first.NotAfter.Sub(first.NotBefore))
	}
	other := signer.pair("web-key", "web-chain", some)
	if other.NotAfter.Sub(other.NotBefore) != 24*time.Hour || first.PublicKeyAlgorithm != x509.Ed25519 || other.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("got a key of %v, and of %v for %v", first.PublicKeyAlgorithm, other.PublicKeyAlgorithm, other.NotAfter.Sub(other.NotBefore))
	}
	m.keysAreOnNoDisk("web-bundle", "web-key")
	if text, err := m.podd.Get(t.Context(), "/metrics"); err != nil || !strings.Contains(string(text), `kubelet_podcertificate_states{signer_name="example.com/good",state="fresh"} 2`) {
		t.Errorf("got %v and the metrics %s", err, text)
	}

	m.bind(m.certified("robot", "strict"))
	m.told("robot", "Denied", "was permanently denied by the signer", `reason="NotWelcome"`, "robots get nothing here")
	m.told("robot", "FailedMount", "was permanently denied by the signer")

	m.stop()
	m.start()
	// The keys ended with the podd that made them; the container runs on, and gets new ones.
	signer.pair("web-bundle", "web-bundle", func(leaf *x509.Certificate) error {
		if leaf.Equal(first) {
			return errors.New("still the one of before the restart")
		}
		return nil
	})
	m.shown("web", "running, never restarted", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].State.Running == nil || c[0].RestartCount != 0 {
			return errors.New("restarted")
		}
		return nil
	})
	m.delete("web", "robot")
	m.gone("web", "robot")
}

// keysAreOnNoDisk searches what podd has on disks for the keys that a container has copied.
func (m *member) keysAreOnNoDisk(files ...string) {
	m.Helper()
	var keys []string
	for _, file := range files {
		block, _ := pem.Decode([]byte(m.contents(file)))
		if block == nil || block.Type != "PRIVATE KEY" {
			m.Fatalf("%s has no key", file)
		}
		keys = append(keys, strings.Split(string(pem.EncodeToMemory(block)), "\n")[1])
	}
	searched := 0
	for _, top := range []string{m.node.Root(), m.node.State()} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			var on unix.Statfs_t
			switch {
			case err != nil || unix.Statfs(path, &on) != nil:
				return nil // gone meanwhile
			case d.IsDir() && on.Type == unix.TMPFS_MAGIC && path != top:
				return fs.SkipDir
			case !d.Type().IsRegular() || on.Type == unix.TMPFS_MAGIC:
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			searched++
			if slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(string(text), key) }) {
				m.Errorf("%s has a private key, on a disk", path)
			}
			return nil
		})
		if err != nil {
			m.Error(err)
		}
	}
	if searched == 0 || strings.Contains(m.podd.LogTail(64<<20), "PRIVATE") {
		m.Errorf("%d files were searched; podd's log may have a key", searched)
	}
}
