package kubeletapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podd/internal/text"
)

// Reviewer asks an apiserver.
type Reviewer interface {
	// ReviewToken returns the user that a token belongs to. authenticated is false if it
	// belongs to nobody.
	ReviewToken(ctx context.Context, token string) (user authenticationv1.UserInfo, authenticated bool, err error)
	// ReviewAccess reports whether a user may do something.
	ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (allowed bool, err error)
}

// Config configures a Guard.
type Config struct {
	// Node is the Node's name.
	Node string
	// Anonymous lets requests without credentials in, as system:anonymous.
	Anonymous bool
	// Tokens enables the review of bearer tokens; TokenTTL is how long an answer stays valid.
	Tokens   bool
	TokenTTL time.Duration
	// Review enables access reviews; without it every authenticated user may do everything.
	// AllowedTTL and DeniedTTL are how long an answer stays valid.
	Review                bool
	AllowedTTL, DeniedTTL time.Duration
	// Subresources are those of the Node that a path takes, one at least. Access to one of them is
	// enough; they are tried in their order. nil: proxy for each.
	Subresources func(path string) []string
	// ClientCAs returns who signs client certificates; nil for nobody.
	ClientCAs func() *x509.CertPool
	Reviewer  Reviewer
	// Admit is called for each admitted request and learns whether it is authenticated. Reject
	// is called for each request rejected because its sender is unauthenticated. Either may be
	// nil.
	Admit  func(ctx context.Context, authenticated bool)
	Reject func(ctx context.Context)
	Log    *slog.Logger
}

// reviewTimeout bounds a call to the apiserver, so that a request does not wait for one that hangs.
const reviewTimeout = 10 * time.Second

// Guard admits requests that are authenticated and authorized.
type Guard struct {
	cfg        Config
	log        *slog.Logger
	tokens     *tokens
	access     *cache[accessKey, bool]
	logLimiter *rate.Limiter // limits messages about refused requests
}

// user is the sender of a request.
type user struct {
	name, uid string
	groups    []string
	extra     map[string]authorizationv1.ExtraValue
}

var anonymous = &user{name: "system:anonymous", groups: []string{"system:unauthenticated"}}

const groupAuthenticated = "system:authenticated"

// NewGuard returns a Guard with empty caches.
func NewGuard(c Config) *Guard {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Subresources == nil {
		c.Subresources = func(string) []string { return []string{"proxy"} }
	}
	if c.Admit == nil {
		c.Admit = func(context.Context, bool) {}
	}
	if c.Reject == nil {
		c.Reject = func(context.Context) {}
	}
	return &Guard{cfg: c, log: c.Log, tokens: newTokens(), access: newCache[accessKey, bool](), logLimiter: rate.NewLimiter(rate.Every(refusedLogInterval), refusedLogBurst)}
}

// Messages about refused requests are limited, because anyone who reaches the port can cause
// them.
const (
	refusedLogInterval = 10 * time.Second
	refusedLogBurst    = 10
	// maxLoggedPath is how much of a refused request's path is logged, in bytes.
	maxLoggedPath = 200
)

// logRefused logs a refused request.
func (g *Guard) logRefused(level slog.Level, message string, r *http.Request, attributes ...any) {
	if !g.logLimiter.Allow() {
		return
	}
	g.log.Log(r.Context(), level, message, append([]any{"path", text.Truncate(r.URL.Path, maxLoggedPath), "from", r.RemoteAddr}, attributes...)...)
}

// Trusts reports whether a client's certificates authenticate it.
func (g *Guard) Trusts(chain []*x509.Certificate) bool {
	u, err := g.userOfCertificate(chain)
	return u != nil && err == nil
}

// Wrap returns a handler that answers 401 and 403 in the kubelet's words, and otherwise
// calls next.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := g.authenticate(r)
		if errors.Is(err, errTooMany) {
			g.logUnreviewed(r.RemoteAddr)
			w.Header().Set("Retry-After", retryAfter)
			g.rejectUnauthenticated(w, r, http.StatusUnauthorized, "Unauthorized") // as in the kubelet: clients expect this code
			return
		}
		if err != nil {
			g.logRefused(slog.LevelInfo, "refused a request: its sender is not known", r, "error", err)
		}
		if u == nil {
			g.rejectUnauthenticated(w, r, http.StatusUnauthorized, "Unauthorized")
			return
		}
		a := g.accessOf(r)
		allowed, err := g.authorize(r.Context(), u, a)
		switch {
		case err != nil:
			g.logRefused(slog.LevelWarn, "refused a request: the apiserver does not say whether it is allowed", r, "user", u.name, "error", err)
			writePlainError(w, http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", u.name, a.verb, a.subresources[0]))
		case !allowed:
			writePlainError(w, http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", u.name, a.verb, a.subresources))
		default:
			g.cfg.Admit(r.Context(), u != anonymous)
			next.ServeHTTP(w, r)
		}
	})
}

// rejectUnauthenticated rejects a request from an unauthenticated sender, and ends its connection.
func (g *Guard) rejectUnauthenticated(w http.ResponseWriter, r *http.Request, code int, text string) {
	g.cfg.Reject(r.Context())
	w.Header().Set("Connection", "close")
	writePlainError(w, code, text)
}

// writePlainError writes the text as plain text, because the client may have chosen part of it.
func writePlainError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// authenticate returns the sender of a request, or nil for nobody. Wrong credentials do not
// count as none: such a request is not anonymous.
func (g *Guard) authenticate(r *http.Request) (*user, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		u, err := g.userOfCertificate(r.TLS.PeerCertificates)
		if u != nil || err != nil && r.Header.Get("Authorization") == "" {
			return u, err
		}
	}
	if token, ok := bearer(r); ok {
		if !g.cfg.Tokens {
			return nil, errors.New("bearer tokens are not accepted (authentication.webhook.enabled)")
		}
		return g.userOfToken(r.Context(), token, r.RemoteAddr)
	}
	if g.cfg.Anonymous {
		return anonymous, nil
	}
	return nil, nil
}

// userOfCertificate returns the user that a client certificate names: its common name is the user,
// its organizations are the groups.
func (g *Guard) userOfCertificate(chain []*x509.Certificate) (*user, error) {
	if g.cfg.ClientCAs == nil {
		return nil, nil
	}
	roots := g.cfg.ClientCAs()
	if roots == nil {
		return nil, nil
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", chain[0].Subject.CommonName, err)
	}
	if chain[0].Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name")
	}
	return &user{name: chain[0].Subject.CommonName, groups: append(append([]string{}, chain[0].Subject.Organization...), groupAuthenticated)}, nil
}

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "bearer") && strings.TrimSpace(token) != ""
}

// accessKey identifies an answer about access.
type accessKey struct{ user, verb, subresource string }

// authorize reports whether a user may do any of the things that a request can be taken for.
func (g *Guard) authorize(ctx context.Context, u *user, a access) (bool, error) {
	if !g.cfg.Review {
		return true, nil
	}
	for _, subresource := range a.subresources {
		allowed, err := g.mayAccess(ctx, u, a.verb, subresource)
		if allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

func (g *Guard) mayAccess(ctx context.Context, u *user, verb, subresource string) (bool, error) {
	identity := fmt.Sprintf("%q %q %q %q", u.name, u.uid, u.groups, u.extra)
	return g.access.get(ctx, accessKey{identity, verb, subresource}, func(ctx context.Context) (bool, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		allowed, err := g.cfg.Reviewer.ReviewAccess(ctx, authorizationv1.SubjectAccessReviewSpec{
			User: u.name, UID: u.uid, Groups: u.groups, Extra: u.extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: g.cfg.Node},
		})
		if err != nil {
			return false, 0, fmt.Errorf("review access: %w", err)
		}
		if allowed {
			return true, g.cfg.AllowedTTL, nil
		}
		return false, g.cfg.DeniedTTL, nil
	})
}
