package apiserver

import (
	"bytes"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Whoever wrote it finds the file and what is wrong with it.
func TestAKubeconfigThatCannotBeUsed(t *testing.T) {
	const head = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
	for name, c := range map[string]struct{ text, want string }{
		"missing":          {"", "kubeconfig: stat "},
		"empty":            {"{}", " is empty: it must name a cluster, a user and a current-context"},
		"no YAML":          {"clusters: [", "yaml: "},
		"without a server": {head + "clusters: [{name: c, cluster: {}}], users: [{name: u, user: {token: x}}]}", "no server found for cluster"},
		"without its CA": {head + "clusters: [{name: c, cluster: {server: 'https://apiserver.test', certificate-authority: none.crt}}], users: [{name: u, user: {token: x}}]}",
			"none.crt: no such file or directory"},
		"with a broken CA": {head + "clusters: [{name: c, cluster: {server: 'https://apiserver.test', certificate-authority-data: eA==}}], users: [{name: u, user: {token: x}}]}",
			"unable to load root certificates"},
		"with half a pair": {head + "clusters: [{name: c, cluster: {server: 'https://apiserver.test'}}], users: [{name: u, user: {client-certificate-data: eA==}}]}",
			"client-key-data or client-key must be specified"},
		"with a URL that is none": {head + "clusters: [{name: c, cluster: {server: 'https://a b'}}], users: [{name: u, user: {token: x}}]}",
			"host must be a URL or a host:port pair"},
	} {
		t.Run(name, func(t *testing.T) {
			f := files{t, t.TempDir()}
			if c.text != "" {
				f.write("kubeconfig", []byte(c.text))
			}
			_, err := Connect(Config{Kubeconfig: f.path("kubeconfig")})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), f.path("kubeconfig")) {
				t.Errorf("got %v, want it to say %q and to name the file", err, c.want)
			}
		})
	}
}

func TestWhichKubeconfigsCanAuthenticate(t *testing.T) {
	good, key := certify(t, "n", time.Now().Add(time.Hour))
	late, _ := certify(t, "n", time.Now().Add(-time.Minute))
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	for name, c := range map[string]struct {
		user string
		cert []byte
		want string // the error; "" for none
	}{
		"with a token":                    {"{token: x}", nil, ""},
		"with a certificate":              {"", good, ""},
		"with its key before it":          {"", slices.Concat(key, good), ""},
		"that has expired":                {"", late, "the client certificate expired at " + time.Now().UTC().Format("2006-01-02T")},
		"with an issuer that has expired": {"", slices.Concat(good, late), "the client certificate expired at "},
		"expired, of a good issuer":       {"", slices.Concat(late, good), "the client certificate expired at "},
		"with a certificate that is none": {"", broken, "client certificate: x509: "},
		"with a key in its place":         {"", key, "client certificate: there is none"},
	} {
		t.Run(name, func(t *testing.T) {
			f := kubeconfigOf(t)
			if c.user == "" {
				c.user = "{client-certificate: cert.pem, client-key: key.pem}"
				f.write("cert.pem", c.cert)
				f.write("key.pem", key)
			}
			f.kubeconfig("https://apiserver.test", c.user)
			err := CheckKubeconfig(f.path("kubeconfig"))
			if want := "kubeconfig " + f.path("kubeconfig") + ": " + c.want; c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if err := CheckKubeconfig(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is missing: got %v", err)
	}
}

// A change of any of them is a change of the kubeconfig.
func TestTheFilesOfAKubeconfig(t *testing.T) {
	f := files{t, t.TempDir()}
	f.write("kubeconfig", []byte(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://a", certificate-authority: pki/ca.crt}}],
users: [{name: u, user: {client-certificate: /etc/cert.pem, client-key: key.pem, tokenFile: token}}, {name: other, user: {token: x}}]}`))
	got := kubeconfigFiles(f.path("kubeconfig"))
	want := []string{f.path("kubeconfig"), f.path("pki/ca.crt"), "/etc/cert.pem", f.path("key.pem"), f.path("token")}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("got %q, want %q", got, want)
	}
	f.write("kubeconfig", []byte("clusters: ["))
	if got := kubeconfigFiles(f.path("kubeconfig")); !slices.Equal(got, want[:1]) {
		t.Errorf("of a broken one: got %q, want the file itself", got)
	}
}

// Whatever differs, requests need other connections.
func TestCredentialsDifferInAllThatRequestsAreMadeBy(t *testing.T) {
	base := func() *rest.Config {
		c := &rest.Config{Host: "h", BearerToken: "t", Username: "u", Password: "p"}
		c.ServerName, c.CAData, c.CertData, c.KeyData = "s", []byte("ca"), []byte("cert"), []byte("key")
		c.Impersonate.UserName, c.Impersonate.Groups = "i", []string{"g"}
		c.ExecProvider = &clientcmdapi.ExecConfig{Command: "exec", Args: []string{"a"}, Env: []clientcmdapi.ExecEnvVar{{Name: "n", Value: "v"}}}
		return c
	}
	sum := sumOf(base())
	if sumOf(base()) != sum {
		t.Error("the same credentials differ")
	}
	for name, change := range map[string]func(*rest.Config){
		"server":            func(c *rest.Config) { c.Host = "x" },
		"server's name":     func(c *rest.Config) { c.ServerName = "x" },
		"insecure":          func(c *rest.Config) { c.Insecure = true },
		"CA":                func(c *rest.Config) { c.CAData = []byte("x") },
		"certificate":       func(c *rest.Config) { c.CertData = []byte("x") },
		"key":               func(c *rest.Config) { c.KeyData = []byte("x") },
		"token":             func(c *rest.Config) { c.BearerToken = "x" },
		"user":              func(c *rest.Config) { c.Username = "x" },
		"password":          func(c *rest.Config) { c.Password = "x" },
		"user and password": func(c *rest.Config) { c.Username, c.Password = c.Password, c.Username },
		"impersonated":      func(c *rest.Config) { c.Impersonate.UserName = "x" },
		"its groups":        func(c *rest.Config) { c.Impersonate.Groups = nil },
		"no command":        func(c *rest.Config) { c.ExecProvider = nil },
		"command":           func(c *rest.Config) { c.ExecProvider.Command = "x" },
		"its arguments":     func(c *rest.Config) { c.ExecProvider.Args = nil },
		"its environment":   func(c *rest.Config) { c.ExecProvider.Env = nil },
	} {
		c := base()
		if change(c); sumOf(c) == sum {
			t.Errorf("another %s: no other credentials", name)
		}
	}
}

// kubeadm reads it, too.
func TestTheKubeconfigThatPoddWrites(t *testing.T) {
	p := newPlace(t)
	f := files{t, t.TempDir()}
	f.write("ca.crt", p.ca())
	f.write("like", []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "`+p.URL+`", tls-server-name: example.com, certificate-authority: ca.crt}}], users: [{name: u, user: {token: secret}}]}`))
	cert, key := certify(t, "system:node:n", time.Now().Add(time.Hour))
	f.write("pair.pem", slices.Concat(cert, key))
	path := f.path("made/kubeconfig")
	if err := WriteKubeconfig(path, f.path("like"), f.path("pair.pem")); err != nil {
		t.Fatal(err)
	}
	config, err := loadKubeconfig(path)
	if err != nil || config.Host != p.URL || config.ServerName != "example.com" || config.Insecure || !bytes.Equal(config.CAData, p.ca()) ||
		!bytes.HasPrefix(config.CertData, cert) || config.BearerToken != "" {
		t.Errorf("got %+v, %v", config, err)
	}
	text, err := os.ReadFile(path)
	for _, name := range []string{"current-context: default-context", "name: default-cluster", "name: default-auth", "namespace: default", "client-certificate: " + f.path("pair.pem")} {
		if !strings.Contains(string(text), name) {
			t.Errorf("it has no %q (%v):\n%s", name, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	c, err := Connect(Config{Kubeconfig: path, UserAgent: "podd/1"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, c)
	if _, err := c.Node(t.Context(), "n"); err != nil || !strings.HasPrefix(p.last(), "system:node:n ") {
		t.Errorf("got %v by %q", err, p.last())
	}
	f.write("insecure", []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "`+p.URL+`", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: secret}}]}`))
	if err := WriteKubeconfig(path, f.path("insecure"), f.path("pair.pem")); err != nil {
		t.Fatal(err)
	}
	if config, err := loadKubeconfig(path); err != nil || !config.Insecure {
		t.Errorf("like an insecure one: got %+v, %v", config, err)
	}
	for what, err := range map[string]error{
		"like none":    WriteKubeconfig(path, f.path("none"), f.path("pair.pem")),
		"below a file": WriteKubeconfig(f.path("like/kubeconfig"), f.path("like"), f.path("pair.pem")),
		"at a directory": func() error {
			return errors.Join(os.Mkdir(f.path("dir"), 0o755), WriteKubeconfig(f.path("dir"), f.path("like"), f.path("pair.pem")))
		}(),
	} {
		want := "write kubeconfig "
		if what == "like none" {
			want = "kubeconfig: stat "
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
}

// closeAll ends a client's connections.
func closeAll(t *testing.T, c *Client) {
	t.Helper()
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.current != nil {
		c.conn.current.close()
	}
}
