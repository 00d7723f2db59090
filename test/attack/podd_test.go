package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podd/cgroup"
	"podd/cri/critest"
)

// memory is what podd may have: the unit has four times as much.
const memory = 256 << 20

// target is a podd under attack.
type target struct {
	dir                    string
	api, readOnly, healthz int // ports
	client                 *http.Client
	cmd                    *exec.Cmd
	ended                  chan struct{}
	log                    bytes.Buffer // read it only once the process has ended
	reviews                atomic.Int64
	slow, failing          atomic.Bool // reviews of tokens take long, or fail
}

// start runs podd as a node of a stub of a cluster, whose only client has a certificate.
func start(t *testing.T) *target {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("podd run needs root")
	}
	dir, err := os.MkdirTemp("", "pa") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &target{dir: dir, api: freePort(t), readOnly: freePort(t), healthz: freePort(t), ended: make(chan struct{})}
	srv := critest.New(t)
	apiserver := httptest.NewServer(http.HandlerFunc(p.review))
	t.Cleanup(apiserver.Close)
	p.certificates(t)
	root := fmt.Sprintf("/poddattack%d", p.api)
	t.Cleanup(func() { removeCgroups(t, root+"/kubepods") })
	p.write(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: node}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, apiserver.URL))
	p.write(t, "config.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %s
podLogsDir: %s
cgroupRoot: %s
address: 127.0.0.1
port: %d
readOnlyPort: %d
healthzPort: %d
failCgroupV1: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
evictionHard: {memory.available: "1", nodefs.available: "1", imagefs.available: "1", pid.available: "1"}
`, srv.Endpoint(), filepath.Join(dir, "logs"), root, p.api, p.readOnly, p.healthz, filepath.Join(dir, "ca.crt")))
	p.run(t)
	return p
}

// run starts the process in a memory cgroup of its own.
func (p *target) run(t *testing.T) {
	t.Helper()
	binary := os.Getenv("PODD_TEST_BINARY")
	if binary == "" {
		binary = filepath.Join(p.dir, "podd")
		build := exec.Command("go", "build", "-o", binary, "podd/cmd/podd")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build podd: %v\n%s", err, out)
		}
	}
	enter := memoryCgroup(t, fmt.Sprintf("poddattack-%d", p.api))
	p.cmd = exec.Command("/bin/sh", "-c", enter+`exec "$0" "$@"`, binary, "run", "--root-dir", filepath.Join(p.dir, "root"),
		"--state-dir", filepath.Join(p.dir, "run"), "--config", filepath.Join(p.dir, "config.yaml"), "--kubeconfig", filepath.Join(p.dir, "kubeconfig"),
		"--hostname-override", "node", "--cert-dir", filepath.Join(p.dir, "pki"), "--container-logs-dir", filepath.Join(p.dir, "containers"))
	p.cmd.Env = append(os.Environ(), "GOMEMLIMIT=")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(30 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if t.Failed() {
			text := p.log.String()
			t.Logf("the end of podd's log:\n%s", text[max(0, len(text)-3000):])
		}
	})
	deadline := time.Now().Add(time.Minute)
	for {
		err := p.ask(t.Context())
		if err == nil {
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("podd ended: %s", p.log.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("podd does not answer: %v", err)
		}
	}
}

// memoryCgroup makes a cgroup and returns the shell text that enters it.
func memoryCgroup(t *testing.T, name string) string {
	t.Helper()
	dir, file := filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		dir, file = filepath.Join("/sys/fs/cgroup", name), "memory.max"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("a memory cgroup cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for range 100 { // until the process has left it
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("the cgroup %s cannot be removed", dir)
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(memory)), 0o644); err != nil {
		t.Skipf("a memory cgroup cannot be bounded here: %v", err)
	}
	return fmt.Sprintf("echo $$ >%s/cgroup.procs && ", dir)
}

// review is the apiserver: no token is anybody's, and the client may do everything.
func (p *target) review(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		p.reviews.Add(1)
		if p.failing.Load() {
			http.Error(w, "the apiserver is not well", http.StatusInternalServerError)
			return
		}
		if p.slow.Load() {
			select {
			case <-time.After(8 * time.Second):
			case <-r.Context().Done():
			}
		}
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{})
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		_ = json.NewEncoder(w).Encode(authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}})
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}
}

// certificates makes an authority, and the client that shows a certificate of it.
func (p *target) certificates(t *testing.T) {
	t.Helper()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	client := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "apiserver"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, client, authority, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	p.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, // each request has to come through the door
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}}
}

func (p *target) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask is a request of the client that may ask.
func (p *target) ask(ctx context.Context) error { return p.get(ctx, "/pods") }

func (p *target) get(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", p.api, path), nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: got %s", path, resp.Status)
	}
	return nil
}

// plain asks a port without TLS.
func plain(ctx context.Context, port int, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s", resp.Status)
	}
	return nil
}

// tries is how often a question is asked in a short attack before it counts as unanswered,
// and the failure threshold of probes: podd closes what makes no progress for a second, and
// a machine that is busy may stand still for as long. In a long attack, which has the machine
// to itself, each question is answered at once.
const tries = 3

// attacked lets attackers at podd for a while, many at a time, and asks all along. Each
// question must be answered.
func (p *target) attacked(t *testing.T, attackers int, attack func(ctx context.Context, n int), ask func(context.Context) error) {
	t.Helper()
	length, tries := 5*time.Second, tries
	if text := os.Getenv("PODD_ATTACK_FOR"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		tries = 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	var wg sync.WaitGroup
	for n := range attackers {
		wg.Go(func() {
			for ctx.Err() == nil {
				attack(ctx, n)
			}
		})
	}
	answered, unanswered, failed := 0, 0, 0 // failed of them in a row
	for answered < tries || time.Since(began) < length {
		if err := ask(t.Context()); err != nil {
			t.Logf("after %d answers: %v", answered, err)
			unanswered++
			if failed++; failed == tries {
				t.Errorf("a question was asked %d times and not answered", tries)
				break
			}
		} else {
			answered, failed = answered+1, 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	if unanswered > answered {
		t.Errorf("%d questions were answered and %d were not", answered, unanswered)
	}
	cancel()
	wg.Wait()
	select {
	case <-p.ended:
		t.Fatalf("podd ended: %v", p.cmd.ProcessState)
	default:
	}
	t.Logf("%d answers", answered)
}

// from dials a port from an address of a stranger's.
func from(ctx context.Context, n, port int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%8))}}
	return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func secure(ctx context.Context, n, port int, protocols ...string) (*tls.Conn, error) {
	conn, err := from(ctx, n, port)
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func removeCgroups(t *testing.T, root string) {
	facts, err := cgroup.Detect()
	if err == nil {
		err = cgroup.NewTree(facts, cgroup.Cgroupfs, root, cgroup.Settings{}).RemoveRoot(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}
