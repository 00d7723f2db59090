package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"podd/internal/filewatch"
	"podd/internal/pod"
)

// credentialsTimeout is how long a request waits for the first credentials. After that it fails
// with the reason why they are missing.
const credentialsTimeout = 5 * time.Second

// connection is the transport of all of a Client's requests. It sends each with the newest
// credentials that podd could read: those of the kubeconfig, or a client certificate that podd
// requested to replace the kubeconfig's.
type connection struct {
	kubeconfig, userAgent string
	// rejectExpired rejects expired credentials even while there are none yet.
	rejectExpired bool
	// server is the URL that the REST clients write their requests for.
	server *url.URL
	log    *slog.Logger
	// ready is closed once there are credentials.
	ready chan struct{}

	mu      sync.Mutex
	current *credentials // nil before the first
	// kubeconfigPair is the kubeconfig's certificate. requestedPair is the one that replaces it.
	kubeconfigPair, requestedPair *pair
	// reloadProblem is why the kubeconfig's newest version cannot be used. notReadyReason is why
	// there are no credentials yet.
	reloadProblem  *pod.Problem
	notReadyReason error
}

// RoundTrip implements http.RoundTripper.
func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := c.credentials(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the sender gets the error
		}
		return nil, err
	}
	if *now.server == *c.server {
		return now.transport.RoundTrip(r)
	}
	moved := r.Clone(r.Context())
	moved.Host, moved.URL.Scheme, moved.URL.Host = "", now.server.Scheme, now.server.Host
	moved.URL.Path = strings.TrimRight(now.server.Path, "/") + strings.TrimPrefix(r.URL.Path, strings.TrimRight(c.server.Path, "/"))
	moved.URL.RawPath = ""
	answer, err := now.transport.RoundTrip(moved)
	if err != nil {
		return nil, fmt.Errorf("by now %s: %w", now.server.Host, err)
	}
	return answer, nil
}

// credentials returns the newest credentials. It waits up to credentialsTimeout for the first.
func (c *connection) credentials(ctx context.Context) (*credentials, error) {
	select {
	case <-c.ready:
	default:
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
		defer cancel()
		select {
		case <-c.ready:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, fmt.Errorf("this node has no credentials for its apiserver yet: %w", c.notReadyReason)
	}
	return c.current, nil
}

// reload reads the kubeconfig again. If anything in it has changed, it uses that, with new
// connections. otherCertificate reports whether the client certificate has changed. If the
// kubeconfig cannot be used, the old credentials stay.
func (c *connection) reload() (otherCertificate bool, err error) {
	config, err := loadKubeconfig(c.kubeconfig)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		own := &pair{config.CertData, config.KeyData}
		otherCertificate = c.kubeconfigPair != nil && !slices.Equal(own.cert, c.kubeconfigPair.cert)
		if c.requestedPair != nil && !otherCertificate {
			config = c.requestedPair.with(config)
		}
		var next *credentials
		if next, err = c.newCredentialsLocked(config); err == nil {
			c.kubeconfigPair, c.reloadProblem = own, nil
			if otherCertificate {
				c.requestedPair = nil
			}
			c.replaceLocked(next)
			return otherCertificate, nil
		}
		err = fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err)
	}
	if c.current == nil {
		c.notReadyReason = err
		return false, err
	}
	if c.reloadProblem == nil || c.reloadProblem.Message != err.Error() {
		c.reloadProblem = &pod.Problem{Origin: c.kubeconfig, Message: err.Error(), Since: time.Now(), LastGoodInUse: true,
			Hint: "podd goes on with the last version that could be used; correct the file, which is then read at once"}
		c.log.Warn("cannot use the new version of the kubeconfig: going on with the last one", "kubeconfig", c.kubeconfig, "error", err)
	}
	return false, err
}

// newCredentialsLocked makes credentials to replace the current ones.
func (c *connection) newCredentialsLocked(config *rest.Config) (*credentials, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = c.userAgent
	same := c.current != nil && c.current.sum == sumOf(config)
	if err := checkNotExpired(config); err != nil && !same && (c.rejectExpired || c.current != nil) {
		return nil, err
	}
	return newCredentials(config)
}

// useRequested replaces the kubeconfig's client certificate.
func (c *connection) useRequested(p pair) error {
	config, err := loadKubeconfig(c.kubeconfig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := c.newCredentialsLocked(p.with(config))
	if err != nil {
		return err
	}
	c.kubeconfigPair, c.requestedPair = &pair{config.CertData, config.KeyData}, &p
	c.replaceLocked(next)
	return nil
}

// replaceLocked makes all later requests use these credentials. It ends current requests by closing
// their connections, because the old credentials may have been revoked. Callers make those
// requests again.
func (c *connection) replaceLocked(next *credentials) {
	old := c.current
	switch {
	case old == nil:
		c.current = next
		close(c.ready)
		return
	case old.sum == next.sum:
		next.close()
		return
	}
	c.current = next
	c.log.Info("using new credentials for the apiserver", "kubeconfig", c.kubeconfig, "server", next.server.String())
	go old.close() // closing many connections may take a while
}

// WatchKubeconfig reads the kubeconfig and the files that it refers to again whenever they change,
// until ctx ends. It calls replaced after the kubeconfig's client certificate has changed.
func (c *Client) WatchKubeconfig(ctx context.Context, replaced func()) error {
	err := filewatch.Watch(ctx, func() []string { return kubeconfigFiles(c.conn.kubeconfig) }, func() {
		if other, err := c.conn.reload(); err == nil && other {
			replaced()
		}
	})
	if err != nil && ctx.Err() == nil {
		c.conn.log.Warn("cannot watch the kubeconfig: a new version takes effect when podd is restarted", "kubeconfig", c.conn.kubeconfig, "error", err)
	}
	<-ctx.Done()
	return ctx.Err()
}

// Reload reads the kubeconfig now.
func (c *Client) Reload() error {
	_, err := c.conn.reload()
	return err
}

// UseCertificate makes the Client authenticate with a client certificate instead of the
// kubeconfig's, until the kubeconfig's changes. cert and key are PEM.
func (c *Client) UseCertificate(cert, key []byte) error { return c.conn.useRequested(pair{cert, key}) }

// Certificate returns the kubeconfig's client certificate and its key, in PEM. Both are empty
// if it has none.
func (c *Client) Certificate() (cert, key []byte) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.kubeconfigPair == nil {
		return nil, nil
	}
	return c.conn.kubeconfigPair.cert, c.conn.kubeconfigPair.key
}

// Ready returns a channel that is closed once there are credentials.
func (c *Client) Ready() <-chan struct{} { return c.conn.ready }

// Problems returns the reason if podd cannot use the newest version of the kubeconfig.
func (c *Client) Problems() []pod.Problem {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.reloadProblem == nil {
		return nil
	}
	return []pod.Problem{*c.conn.reloadProblem}
}

// Reconnect makes all later requests use new connections, and ends the current ones. It is for
// a machine that has a new address: nothing sent to the old one arrives, and podd would take a
// minute to notice. The error says that the kubeconfig cannot be used; the old connections stay
// then.
func (c *Client) Reconnect() error { return c.conn.reconnect() }

func (c *connection) reconnect() error {
	config, err := loadKubeconfig(c.kubeconfig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil
	}
	if c.requestedPair != nil {
		config = c.requestedPair.with(config)
	}
	next, err := c.newCredentialsLocked(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err)
	}
	old := c.current
	c.current = next
	go old.close() // closing many connections may take a while
	return nil
}
