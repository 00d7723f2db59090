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

// firstWait is how long a request waits for the first credentials. After that it fails with the
// reason why they are missing.
const firstWait = 5 * time.Second

// connection is the transport of all of a Client's requests. It sends each with the newest
// credentials that podd could read: those of the kubeconfig, or a client certificate that podd
// requested to replace the kubeconfig's.
type connection struct {
	kubeconfig, userAgent string
	// strict rejects expired credentials even while there are none yet.
	strict bool
	// server is the URL that the REST clients write their requests for.
	server *url.URL
	log    *slog.Logger
	// first is closed once there are credentials.
	first chan struct{}

	mu  sync.Mutex
	now *credentials // nil before the first
	// own is the kubeconfig's certificate. requested is the one that replaces it.
	own, requested *pair
	// failure is why the kubeconfig's newest version cannot be used. missing is why there are
	// no credentials yet.
	failure *pod.Problem
	missing error
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

// credentials returns the newest credentials. It waits up to firstWait for the first.
func (c *connection) credentials(ctx context.Context) (*credentials, error) {
	select {
	case <-c.first:
	default:
		ctx, cancel := context.WithTimeout(ctx, firstWait)
		defer cancel()
		select {
		case <-c.first:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return nil, fmt.Errorf("this node has no credentials for its apiserver yet: %w", c.missing)
	}
	return c.now, nil
}

// reload reads the kubeconfig again. If anything in it has changed, it uses that, with new
// connections. otherCertificate reports whether the client certificate has changed. If the
// kubeconfig cannot be used, the old credentials stay.
func (c *connection) reload() (otherCertificate bool, err error) {
	config, err := load(c.kubeconfig)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		own := &pair{config.CertData, config.KeyData}
		otherCertificate = c.own != nil && !slices.Equal(own.cert, c.own.cert)
		if c.requested != nil && !otherCertificate {
			config = c.requested.with(config)
		}
		var next *credentials
		if next, err = c.renewLocked(config); err == nil {
			c.own, c.failure = own, nil
			if otherCertificate {
				c.requested = nil
			}
			c.useLocked(next)
			return otherCertificate, nil
		}
		err = fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err)
	}
	if c.now == nil {
		c.missing = err
		return false, err
	}
	if c.failure == nil || c.failure.Message != err.Error() {
		c.failure = &pod.Problem{Origin: c.kubeconfig, Message: err.Error(), Since: time.Now(), KeptRunning: true,
			Hint: "podd goes on with the last version that could be used; correct the file, which is then read at once"}
		c.log.Warn("cannot use the new version of the kubeconfig: going on with the last one", "kubeconfig", c.kubeconfig, "error", err)
	}
	return false, err
}

// renewLocked makes credentials to replace the current ones.
func (c *connection) renewLocked(config *rest.Config) (*credentials, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = c.userAgent
	same := c.now != nil && c.now.sum == sumOf(config)
	if err := expired(config); err != nil && !same && (c.strict || c.now != nil) {
		return nil, err
	}
	return newCredentials(config)
}

// useRequested replaces the kubeconfig's client certificate.
func (c *connection) useRequested(p pair) error {
	config, err := load(c.kubeconfig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := c.renewLocked(p.with(config))
	if err != nil {
		return err
	}
	c.own, c.requested = &pair{config.CertData, config.KeyData}, &p
	c.useLocked(next)
	return nil
}

// useLocked makes all later requests use these credentials. It ends current requests by closing
// their connections, because the old credentials may have been revoked. Callers make those
// requests again.
func (c *connection) useLocked(next *credentials) {
	old := c.now
	switch {
	case old == nil:
		c.now = next
		close(c.first)
		return
	case old.sum == next.sum:
		next.close()
		return
	}
	c.now = next
	c.log.Info("using new credentials for the apiserver", "kubeconfig", c.kubeconfig, "server", next.server.String())
	go old.close() // closing many connections may take a while
}

// Maintain reads the kubeconfig and the files that it refers to again whenever they change,
// until ctx ends. It calls replaced after the kubeconfig's client certificate has changed.
func (c *Client) Maintain(ctx context.Context, replaced func()) error {
	err := filewatch.Watch(ctx, func() []string { return filesOf(c.conn.kubeconfig) }, func() {
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

// Use makes the Client authenticate with a client certificate instead of the kubeconfig's,
// until the kubeconfig's changes. cert and key are PEM.
func (c *Client) Use(cert, key []byte) error { return c.conn.useRequested(pair{cert, key}) }

// Certificate returns the kubeconfig's client certificate and its key, in PEM. Both are empty
// if it has none.
func (c *Client) Certificate() (cert, key []byte) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.own == nil {
		return nil, nil
	}
	return c.conn.own.cert, c.conn.own.key
}

// Ready returns a channel that is closed once there are credentials.
func (c *Client) Ready() <-chan struct{} { return c.conn.first }

// Problems returns the reason if podd cannot use the newest version of the kubeconfig.
func (c *Client) Problems() []pod.Problem {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.failure == nil {
		return nil
	}
	return []pod.Problem{*c.conn.failure}
}

// Reconnect makes all later requests use new connections, and ends the current ones. It is for
// a machine that has a new address: nothing sent to the old one arrives, and podd would take a
// minute to notice. The error says that the kubeconfig cannot be used; the old connections stay
// then.
func (c *Client) Reconnect() error { return c.conn.reconnect() }

func (c *connection) reconnect() error {
	config, err := load(c.kubeconfig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return nil
	}
	if c.requested != nil {
		config = c.requested.with(config)
	}
	next, err := c.renewLocked(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err)
	}
	old := c.now
	c.now = next
	go old.close() // closing many connections may take a while
	return nil
}
