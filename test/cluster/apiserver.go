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
	// Args are added to the command line. Nodes may join, with NodeKubeconfig. Users have
	// tokens, and no rights but those that a test gives them.
	Args, Nodes, Users []string
	// Accounts says that somebody makes service accounts and signs nodes' certificates: a
	// controller manager. Without one, no pod could be created that must have an account.
	Accounts bool
	// Audit has the requests of nodes noted, for Requests.
	Audit bool
	// OwnEtcd has etcd run as a process of its own, Etcd, which fails without the apiserver.
	// Start starts it where it does not run, and Stop ends it.
	OwnEtcd bool
	Etcd    Program

	token  string
	signer *signer
	client *Client
	cmd    *exec.Cmd
	done   chan struct{}
}

// serviceCIDR is where Services have their addresses. Nothing routes them: there is no kube-proxy.
const serviceCIDR = "10.96.0.0/16"

// startTimeout is for a machine that does much else: alone it takes five seconds.
const startTimeout = 3 * time.Minute

func (a *APIServer) path(name string) string { return filepath.Join(a.Dir, name) }

// Start runs the apiserver and returns when it is ready. What was stored before in
// the same directory is there again.
func (a *APIServer) Start(ctx context.Context) error {
	if err := a.prepare(); err != nil {
		return fmt.Errorf("prepare the apiserver: %w", err)
	}
	if err := a.startEtcd(); err != nil {
		return err
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
	if err := a.await(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, a.LogTail()), a.Stop())
	}
	return nil
}

// await returns when the apiserver is ready, or has ended.
func (a *APIServer) await(ctx context.Context) error {
	return testnode.Poll(ctx, 50*time.Millisecond, func() error {
		if !a.Running() {
			return testnode.Stop(errors.New("the apiserver ended"))
		}
		return a.ready(ctx)
	})
}

// Resume starts again what of the apiserver and its etcd does not run, and returns when the
// apiserver is ready.
func (a *APIServer) Resume(ctx context.Context) error {
	if !a.Running() {
		return a.Start(ctx)
	}
	if err := a.startEtcd(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return a.await(ctx)
}

func (a *APIServer) startEtcd() error {
	if !a.OwnEtcd || a.Etcd.Pid() != 0 {
		return nil
	}
	return a.Etcd.Start()
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
	flags := []string{
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(a.Port),
		"--cert-dir=" + a.path("certs"), "--token-auth-file=" + a.path("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=" + a.URL(), "--service-account-key-file=" + a.path("accounts.pem"),
		"--service-account-signing-key-file=" + a.path("accounts.pem"), "--service-cluster-ip-range=" + serviceCIDR,
		"--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--client-ca-file=" + a.ClientCA(), "--kubelet-client-certificate=" + a.path("client.crt"), "--kubelet-client-key=" + a.path("client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--enable-admission-plugins=NodeRestriction",
		// By these an apiserver behind this one knows on whose behalf it is asked.
		"--requestheader-client-ca-file=" + a.path("front-proxy-ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + a.path("front-proxy.crt"), "--proxy-client-key-file=" + a.path("front-proxy.key"),
	}
	if a.OwnEtcd {
		flags = append(flags, "--etcd-servers=unix://localhost:2379") // a socket in the working directory of both
	}
	flags = append(flags, a.auditFlags()...)
	if !a.Accounts {
		return append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return flags
}

// prepare makes what the flags name, at the first start: who had a token or a certificate
// has it after a restart, too.
func (a *APIServer) prepare() error {
	a.client = nil
	if a.token != "" {
		return nil
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	a.Etcd = Program{Name: "etcd", Binary: a.Binary, Dir: a.Dir, Args: []string{"etcd"}}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	a.token = hex.EncodeToString(random)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if err := errors.Join(a.makeClientCertificate(), a.makeFrontProxy()); err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return errors.Join(
		os.WriteFile(a.path("tokens.csv"), []byte(a.tokens()), 0o600),
		os.WriteFile(a.path("accounts.pem"), text, 0o600),
		os.WriteFile(a.path("audit-policy.yaml"), []byte(auditPolicy), 0o600),
	)
}

// tokens are the administrator's, that of a node that has no certificate yet, and those of
// Nodes, each of which may do what a node agent may (the Node authorizer).
func (a *APIServer) tokens() string {
	text := a.token + ",admin,admin,system:masters\n" + a.token + "-bootstrap,system:bootstrap:test,bootstrap,system:bootstrappers\n"
	for _, node := range a.Nodes {
		text += fmt.Sprintf("%s-%s,system:node:%s,%s,system:nodes\n", a.token, node, node, node)
	}
	for _, user := range a.Users {
		text += fmt.Sprintf("%s,%s,%s\n", a.UserToken(user), user, user)
	}
	return text
}

// UserToken is the token of one of Users.
func (a *APIServer) UserToken(user string) string { return a.token + "-" + user }

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

// impatience is when the apiserver is told a second time to end: at the first it waits for
// clients that watch something, a minute long, at the second it exits.
const impatience = 2 * time.Second

// Stop ends the apiserver and its etcd and returns when they are gone, at most 30 s later.
func (a *APIServer) Stop() error { return errors.Join(a.stop(), a.Etcd.Stop()) }

func (a *APIServer) stop() error {
	if !a.Running() {
		return nil
	}
	err := a.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-a.done:
		return err
	case <-time.After(impatience):
		err = errors.Join(err, a.cmd.Process.Signal(unix.SIGTERM))
	}
	select {
	case <-a.done:
	case <-time.After(20*time.Second - impatience):
		err = errors.Join(err, a.cmd.Process.Kill())
		<-a.done
	}
	return err
}

// Freeze stops the process, which keeps its connections and answers nothing, until Thaw.
func (a *APIServer) Freeze() error { return a.cmd.Process.Signal(unix.SIGSTOP) }

// Thaw lets a frozen process go on.
func (a *APIServer) Thaw() error { return a.cmd.Process.Signal(unix.SIGCONT) }

// Kill ends the apiserver, and the etcd that is in it, if it has none of its own, as a crash
// would, and returns when it is gone. What it has stored is there after the next Start.
func (a *APIServer) Kill() error {
	if !a.Running() {
		return nil
	}
	err := a.cmd.Process.Kill()
	<-a.done
	return err
}

// Pid is 0 when it does not run.
func (a *APIServer) Pid() int {
	if !a.Running() {
		return 0
	}
	return a.cmd.Process.Pid
}

// LogTail is the end of what it wrote.
func (a *APIServer) LogTail() string {
	text, _ := os.ReadFile(a.path("apiserver.log"))
	return string(text[max(0, len(text)-3000):])
}

// Kubeconfig writes the file by which another program is an administrator.
func (a *APIServer) Kubeconfig(path string) error { return a.kubeconfig(path, "admin", a.token) }

// UserKubeconfig writes the file by which another program is one of Users.
func (a *APIServer) UserKubeconfig(path, user string) error {
	return a.kubeconfig(path, user, a.UserToken(user))
}

// NodeKubeconfig writes the file by which an agent is one of Nodes.
func (a *APIServer) NodeKubeconfig(path, node string) error {
	return a.kubeconfig(path, "system:node:"+node, a.token+"-"+node)
}

func (a *APIServer) kubeconfig(path, user, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %[3]q, user: {token: %[4]q}}]
contexts: [{name: test, context: {cluster: test, user: %[3]q}}]
current-context: test
`, a.URL(), a.path("certs/apiserver.crt"), user, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
