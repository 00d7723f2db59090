package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"podd/test/cluster"
)

// requests returns the undecided CertificateSigningRequests of a signer.
func (m *member) requests(ctx context.Context, signer string) (names []string, err error) {
	text, err := m.server.Client().Raw(ctx, "/apis/certificates.k8s.io/v1/certificatesigningrequests")
	var list certificatesv1.CertificateSigningRequestList
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		if r.Spec.SignerName == signer && len(r.Status.Conditions) == 0 {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// approve waits for a request to a signer, and issues a certificate for life.
func (m *member) approve(signer string, life time.Duration) {
	m.Helper()
	m.eventually("a certificate of "+signer+" is requested", func(ctx context.Context) error {
		names, err := m.requests(ctx, signer)
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("there are the requests %q", names)
		}
		if err != nil {
			return err
		}
		return m.server.Approve(ctx, names[0], life)
	})
}

func (m *member) nodeIsReady() {
	m.Helper()
	m.eventually("the node is ready", func(ctx context.Context) error {
		var n v1.Node
		if err := m.server.Client().Get(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
	})
}

// pki is where podd keeps a certificate.
func (m *member) pki(prefix string) string {
	return filepath.Join(m.podd.Dir, "pki", prefix+"-current.pem")
}

// A node that has nothing but a bootstrap token gets its certificates, and renews the
// client's while it is used.
// served is the certificate with which the kubelet's API is served.
func (m *member) served() (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(m.node.Port+9), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

func TestANodeBootstrapsAndRenewsItsCertificates(t *testing.T) {
	m := meet(t)
	bootstrap := filepath.Join(m.podd.Dir, "bootstrap-kubeconfig")
	if err := m.server.BootstrapKubeconfig(t.Context(), bootstrap); err != nil {
		t.Fatal(err)
	}
	m.podd.Args = append(m.podd.Args, "--bootstrap-kubeconfig="+bootstrap, "--rotate-certificates", "--rotate-server-certificates")
	m.start()
	m.write("static.yaml", m.resting("static"))
	m.mark("static") // what is not of the cluster does not wait for it
	m.problem("kubelet-client-current.pem", "waiting until the CertificateSigningRequest", "kubectl certificate approve")
	const life = 20 * time.Second // in which a slow machine gets to the renewal
	m.approve(certificatesv1.KubeAPIServerClientKubeletSignerName, life)
	m.nodeIsReady()
	first, err := os.Readlink(m.pki("kubelet-client"))
	if err != nil || filepath.Base(first) == "kubelet-client-current.pem" {
		t.Fatalf("got %q, %v", first, err)
	}
	if info, err := os.Stat(m.pki("kubelet-client")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := m.served(); err == nil {
		t.Error("the API is served without a certificate")
	}
	m.approve(certificatesv1.KubeletServingSignerName, life)
	m.bind(m.podOf("web", ": > /out/web; echo said; ${REST}"))
	m.shown("web", "ready", isReady)
	var serving *x509.Certificate
	m.eventually("the API is served with the certificate", func(context.Context) (err error) {
		serving, err = m.served()
		if err == nil && (serving.Subject.CommonName != "system:node:"+m.podd.NodeName() || len(serving.IPAddresses) == 0 || len(serving.DNSNames) != 1) {
			err = fmt.Errorf("it is for %s, %v, %v", serving.Subject, serving.DNSNames, serving.IPAddresses)
		}
		return err
	})
	m.approve(certificatesv1.KubeAPIServerClientKubeletSignerName, time.Hour) // in time
	m.eventually("the new certificate is stored", func(context.Context) error {
		if now, err := os.Readlink(m.pki("kubelet-client")); err != nil || now == first {
			return fmt.Errorf("it is %s, %v", now, err)
		}
		return nil
	})
	m.approve(certificatesv1.KubeletServingSignerName, time.Hour)
	m.eventually("the API is served with the new certificate", func(context.Context) error {
		if now, err := m.served(); err != nil || now.SerialNumber.Cmp(serving.SerialNumber) == 0 || time.Until(now.NotAfter) < life {
			return fmt.Errorf("it is the old one, %w", err)
		}
		return nil
	})
	m.bind(m.resting("later"))
	m.shown("later", "ready", isReady)
	m.delete("web", "later")
	m.gone("web", "later")
	m.kill()
	if err := os.Remove(bootstrap); err != nil { // as kubeadm does
		t.Fatal(err)
	}
	m.start()
	m.bind(m.resting("after"))
	m.shown("after", "ready", isReady)
	m.delete("after")
	m.gone("after")
}

// A kubeconfig that is replaced takes effect at once; one that is broken changes nothing.
func TestAReplacedKubeconfigTakesEffectAtOnce(t *testing.T) {
	m := join(t)
	m.nodeIsReady()
	old, err := os.ReadFile(m.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	m.replaceKubeconfig("clusters: [")
	m.problem("kubeconfig", "podd goes on with the last version")
	m.bind(m.resting("broken"))
	m.shown("broken", "ready", isReady)
	// A certificate in the place of the token, and another address.
	port, passed := forward(t, strconv.Itoa(m.server.Port))
	text := replaced(m, string(old), strconv.Itoa(m.server.Port), port)
	m.replaceKubeconfig(m.withCertificate(text, time.Hour))
	m.eventually("the new address is used", func(context.Context) error {
		if passed.Load() == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	m.bind(m.resting("moved"))
	m.shown("moved", "ready", isReady)
	m.delete("broken", "moved")
	m.gone("broken", "moved")
}

// replaceKubeconfig replaces podd's kubeconfig in one step.
func (m *member) replaceKubeconfig(text string) {
	m.Helper()
	next := m.kubeconfig() + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, m.kubeconfig())); err != nil {
		m.Fatal(err)
	}
}

// withCertificate is a kubeconfig with a client certificate of that life in the place of its
// token.
func (m *member) withCertificate(kubeconfig string, life time.Duration) string {
	m.Helper()
	cert, key, err := m.server.NodeCertificate(m.podd.NodeName(), life)
	if err != nil {
		m.Fatal(err)
	}
	return m.withClient(kubeconfig, "node.pem", append(cert, key...))
}

// withRevoked is a kubeconfig with a client certificate whose authority the apiserver no longer
// trusts, which is all that revokes one in Kubernetes.
func (m *member) withRevoked(kubeconfig string) string {
	m.Helper()
	c, err := m.server.ClientCertificate("system:node:"+m.podd.NodeName(), false)
	if err != nil {
		m.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		m.Fatal(err)
	}
	return m.withClient(kubeconfig, "revoked.pem", append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...))
}

// withClient is a kubeconfig with a client certificate and its key, in a file of that name, in
// the place of its token.
func (m *member) withClient(kubeconfig, name string, certificate []byte) string {
	m.Helper()
	path := filepath.Join(m.podd.Dir, name)
	if err := os.WriteFile(path, certificate, 0o600); err != nil {
		m.Fatal(err)
	}
	before, rest, _ := strings.Cut(kubeconfig, "{token:")
	return before + fmt.Sprintf("{client-certificate: %q, client-key: %[1]q}}]", path) + rest[strings.Index(rest, "\n"):]
}

// forward listens on a port of loopback, and passes its connections on to another one, which
// it counts.
func forward(t *testing.T, to string) (port string, passed *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed = &atomic.Int32{}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			into, err := net.Dial("tcp", "127.0.0.1:"+to)
			if err != nil {
				_ = from.Close()
				continue
			}
			passed.Add(1)
			for _, way := range [][2]net.Conn{{from, into}, {into, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				}()
			}
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, passed
}
