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

// firstWait is how long a request waits for the first credentials before it fails with the
// reason why there are none.
const firstWait = 5 * time.Second

// connection is the transport of all of a Client's requests. It sends each with the newest
// credentials that could be read: those of the kubeconfig, or a client certificate that
// podd has requested in the place of the kubeconfig's.
type connection struct {
	kubeconfig, userAgent string
	// strict: before the first, credentials that have expired are none.
	strict bool
	// server is the one that the REST clients write requests for.
	server *url.URL
	log    *slog.Logger
	// first is closed when there are credentials.
	first chan struct{}

	mu  sync.Mutex
	now *credentials // nil before the first
	// own is the certificate of the kubeconfig, requested the one in its place.
	own, requested *pair
	// failure is why the kubeconfig's newest version cannot be used; missing is why there
	// are no credentials yet.
	failure *pod.Problem
	missing error
}

// RoundTrip implements http.RoundTripper.
func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := c.credentials(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // whoever sent it gets the error
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

// credentials returns the newest, and waits a while for the first.
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

// reload reads the kubeconfig again and uses what is new in it, with new connections. It
// says whether the kubeconfig has another client certificate than before. If it cannot be
// used, the old credentials stay.
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

// renewLocked makes credentials in the place of those that are used.
func (c *connection) renewLocked(config *rest.Config) (*credentials, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = c.userAgent
	same := c.now != nil && c.now.sum == sumOf(config)
	if err := expired(config); err != nil && !same && (c.strict || c.now != nil) {
		return nil, err
	}
	return newCredentials(config)
}

// useRequested puts a client certificate in the place of the kubeconfig's.
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

// useLocked has all requests from now on made with these credentials. Those under way are
// ended with their connections: what they authenticated by may have been revoked. Whoever
// made them makes them again.
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
// until ctx ends. It calls replaced after the kubeconfig was given another client
// certificate than it had.
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

// Use authenticates by a client certificate in the place of the kubeconfig's, from now on
// and until the kubeconfig has another one. It is given with its key, in PEM.
func (c *Client) Use(cert, key []byte) error { return c.conn.useRequested(pair{cert, key}) }

// Certificate returns the client certificate of the kubeconfig and its key, in PEM; both
// empty for none.
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

// Problems returns why the newest version of the kubeconfig is not used, if so.
func (c *Client) Problems() []pod.Problem {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.failure == nil {
		return nil
	}
	return []pod.Problem{*c.conn.failure}
}

// Reconnect has all requests from now on made over new connections, and ends those under
// way: for a machine whose address has changed, from which nobody answers to the old one, and
// which would wait for that a minute. The error is that of a kubeconfig that cannot be used;
// the old connections stay then.
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
