package apiserver

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"podd/internal/atomicfile"
)

// loadKubeconfig reads a kubeconfig's current context. It reads the credentials into memory, so
// that they change only when podd reads them again and not in the middle of an operation.
func loadKubeconfig(path string) (*rest.Config, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig %s is empty: it must name a cluster, a user and a current-context", path)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	case config.Host == "":
		return nil, fmt.Errorf("kubeconfig %s: %w", path, errors.New("the current context's cluster has no server"))
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	// clientcmd has already read the token file.
	config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile = "", "", "", ""
	return config, nil
}

// kubeconfigFiles returns the paths of a kubeconfig and of the files that it refers to, even if
// these make it unusable.
func kubeconfigFiles(path string) []string {
	files := []string{path}
	add := func(name string) {
		if name != "" && !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		if name != "" {
			files = append(files, name)
		}
	}
	all, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return files
	}
	for _, c := range all.Clusters {
		add(c.CertificateAuthority)
	}
	for _, u := range all.AuthInfos {
		add(u.ClientCertificate)
		add(u.ClientKey)
		add(u.TokenFile)
	}
	return files
}

// CheckKubeconfig returns an error if podd cannot authenticate with a kubeconfig now, in
// particular if its client certificate has expired.
func CheckKubeconfig(path string) error {
	config, err := loadKubeconfig(path)
	if err != nil {
		return err
	}
	if err := checkNotExpired(config); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

// checkNotExpired returns an error if there is a client certificate and it can no longer be used.
func checkNotExpired(config *rest.Config) error {
	if len(config.CertData) == 0 {
		return nil
	}
	until, err := earliestExpiry(config.CertData)
	switch {
	case err != nil:
		return fmt.Errorf("client certificate: %w", err)
	case time.Now().After(until):
		return fmt.Errorf("the client certificate expired at %s", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// earliestExpiry returns the earliest expiry among the certificates of a PEM text.
func earliestExpiry(text []byte) (first time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, err
		}
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	if first.IsZero() {
		return first, errors.New("there is none")
	}
	return first, nil
}

// pair is a client certificate with its key, in PEM.
type pair struct{ cert, key []byte }

// with returns a configuration that authenticates only with this client certificate.
func (p pair) with(config *rest.Config) *rest.Config {
	out := rest.AnonymousClientConfig(config)
	out.CertData, out.KeyData = p.cert, p.key
	return out
}

// credentials are the server and the transport for requests, from one reading of the files.
type credentials struct {
	server    *url.URL
	transport http.RoundTripper
	close     func()
	sum       [sha256.Size]byte
}

// newCredentials makes a transport of its own: client-go never releases the ones that it makes
// for certificates.
func newCredentials(config *rest.Config) (*credentials, error) {
	config = rest.CopyConfig(config)
	connections := &connections{ConnectionTracker: connrotation.NewConnectionTracker()}
	config.Dial = connections.dial
	conf, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(conf)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	if conf.Proxy == nil {
		conf.Proxy = http.ProxyFromEnvironment
	}
	base := utilnet.SetTransportDefaults(&http.Transport{
		Proxy: conf.Proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: 25,
		DialContext: conf.DialHolder.Dial, DisableCompression: conf.DisableCompression,
	})
	c := &credentials{server: server, sum: sumOf(config)}
	c.close = func() {
		base.CloseIdleConnections()
		connections.close()
	}
	c.transport, err = transport.HTTPWrappersForConfig(conf, base)
	return c, err
}

// connections are the connections made with one set of credentials. Once they are closed, no
// more can be made. Otherwise a request that had just taken the credentials when they were
// replaced would open a new one, and a watch would go on with credentials that may have been
// revoked.
type connections struct {
	*connrotation.ConnectionTracker
	closed atomic.Bool
}

var errCredentialsReplaced = errors.New("the credentials of this request were replaced while it was being made")

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.closed.Load() {
		return nil, errCredentialsReplaced
	}
	conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn = c.Track(conn)
	if c.closed.Load() { // CloseAll may have run before this connection was tracked
		_ = conn.Close()
		return nil, errCredentialsReplaced
	}
	return conn, nil
}

func (c *connections) close() {
	c.closed.Store(true)
	c.CloseAll()
}

// sumOf returns a hash of everything that credentials are made from.
func sumOf(c *rest.Config) [sha256.Size]byte {
	text := fmt.Appendf(nil, "%q %q %t %q %q %q %q %q %q %q %q", c.Host, c.ServerName, c.Insecure, c.CAData, c.CertData, c.KeyData, c.BearerToken,
		c.Username, c.Password, c.Impersonate.UserName, c.Impersonate.Groups)
	if e := c.ExecProvider; e != nil {
		text = fmt.Appendf(text, "%q %q %q", e.Command, e.Args, e.Env)
	}
	return sha256.Sum256(text)
}

// WriteKubeconfig writes a kubeconfig for the same cluster as another one. Its user has the
// certificate and key from a file. The names of contexts and users are upstream's, which
// kubeadm reads.
func WriteKubeconfig(path, like, pemFile string) error {
	from, err := loadKubeconfig(like)
	if err != nil {
		return err
	}
	cluster := &clientcmdapi.Cluster{
		Server: from.Host, InsecureSkipTLSVerify: from.Insecure, TLSServerName: from.ServerName, CertificateAuthorityData: from.CAData,
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: pemFile, ClientKey: pemFile}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), atomicfile.WriteDurably(path, text, 0o600)); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
