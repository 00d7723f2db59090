package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// APIServer is a kube-apiserver on loopback. Its methods are not for several
// goroutines at once, those of its Client are.
type APIServer struct {
	// Binary is what the module apiserver builds. Dir is the apiserver's alone:
	// storage, keys, certificate, log. Port is the one that it serves.
	Binary, Dir string
	Port        int
	// Args are added to the command line.
	Args []string

	token  string
	client *Client
	cmd    *exec.Cmd
	done   chan struct{}
}

// startTimeout is for a machine that does much else: alone it takes five seconds.
const startTimeout = 3 * time.Minute

func (a *APIServer) path(name string) string { return filepath.Join(a.Dir, name) }

// Start runs the apiserver and returns when it is ready. What was stored before in
// the same directory is there again.
func (a *APIServer) Start(ctx context.Context) error {
	if err := a.prepare(); err != nil {
		return fmt.Errorf("prepare the apiserver: %w", err)
	}
	log, err := os.Create(a.path("apiserver.log"))
	if err != nil {
		return fmt.Errorf("make the apiserver's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	a.cmd = exec.Command(a.Binary, append(a.flags(), a.Args...)...)
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = a.Dir, log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the harness's
	if err := a.cmd.Start(); err != nil {
		return fmt.Errorf("start the apiserver: %w", err)
	}
	a.done = make(chan struct{})
	go func() { _ = a.cmd.Wait(); close(a.done) }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = testnode.Poll(ctx, 50*time.Millisecond, func() error {
		if !a.Running() {
			return testnode.Stop(errors.New("the apiserver ended"))
		}
		return a.ready(ctx)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, a.LogTail()), a.Stop())
	}
	return nil
}

// ready says whether the apiserver serves, and the namespace default is there.
func (a *APIServer) ready(ctx context.Context) (err error) {
	if a.client == nil {
		if a.client, err = newClient(a.URL(), a.token, a.path("certs/apiserver.crt")); err != nil {
			return err
		}
	}
	if _, err := a.client.get(ctx, "/readyz"); err != nil {
		return err
	}
	_, err = a.client.get(ctx, "/api/v1/namespaces/default")
	return err
}

// flags are what every test wants. The certificate is the apiserver's own: it makes
// one for loopback.
func (a *APIServer) flags() []string {
	return []string{
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(a.Port),
		"--cert-dir=" + a.path("certs"), "--token-auth-file=" + a.path("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=" + a.URL(), "--service-account-key-file=" + a.path("accounts.pem"),
		"--service-account-signing-key-file=" + a.path("accounts.pem"), "--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true", "--endpoint-reconciler-type=none",
		// There is nobody to make service accounts: with this plugin no pod could be created.
		"--disable-admission-plugins=ServiceAccount",
	}
}

// prepare makes what the flags name.
func (a *APIServer) prepare() error {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	a.token, a.client = hex.EncodeToString(random), nil
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return errors.Join(
		os.WriteFile(a.path("tokens.csv"), []byte(a.token+",admin,admin,system:masters\n"), 0o600),
		os.WriteFile(a.path("accounts.pem"), text, 0o600),
	)
}

// URL is where it serves.
func (a *APIServer) URL() string { return "https://127.0.0.1:" + strconv.Itoa(a.Port) }

// Client speaks to it as an administrator; nil before Start.
func (a *APIServer) Client() *Client { return a.client }

// Running says whether the process is there.
func (a *APIServer) Running() bool {
	if a.done == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// Stop ends the apiserver and returns when it is gone, at most 20 s later.
func (a *APIServer) Stop() error {
	if !a.Running() {
		return nil
	}
	err := a.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(20 * time.Second):
		err = errors.Join(err, a.cmd.Process.Kill())
		<-a.done
	}
	return err
}

// LogTail is the end of what it wrote.
func (a *APIServer) LogTail() string {
	text, _ := os.ReadFile(a.path("apiserver.log"))
	return string(text[max(0, len(text)-3000):])
}

// Kubeconfig writes the file by which another program is an administrator.
func (a *APIServer) Kubeconfig(path string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, a.URL(), a.path("certs/apiserver.crt"), a.token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
