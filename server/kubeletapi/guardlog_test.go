package kubeletapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// guardWithLog is a guard with its log, and what it says of connections.
type guardWithLog struct {
	*Guard
	http.Handler
	log      *bytes.Buffer
	admitted []bool // was the sender authenticated?
	dropped  int
}

func newGuardWithLog(r Reviewer, change func(c *Config)) *guardWithLog {
	w := &guardWithLog{log: &bytes.Buffer{}}
	c := Config{
		Node: "node0", Tokens: true, TokenTTL: 2 * time.Minute, Review: true, AllowedTTL: 5 * time.Minute, DeniedTTL: 30 * time.Second, Reviewer: r, Subresources: subresourcesOf,
		Admit:  func(_ context.Context, authenticated bool) { w.admitted = append(w.admitted, authenticated) },
		Reject: func(context.Context) { w.dropped++ },
		Log:    slog.New(slog.NewTextHandler(w.log, nil)),
	}
	if change != nil {
		change(&c)
	}
	w.Guard = NewGuard(c)
	w.Handler = w.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return w
}

// send sends a request with an Authorization header, or none.
func (w *guardWithLog) send(path, authorization string, chain ...*x509.Certificate) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if chain != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: chain}
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out
}

func (w *guardWithLog) logged(text string) int { return strings.Count(w.log.String(), text) }

// TestARefusalEndsItsConnectionAndIsNoPage: a browser must not take a part of it for one.
func TestARefusalEndsItsConnectionAndIsNoPage(t *testing.T) {
	r := &reviewer{may: map[string][]string{"robot": {"metrics"}}}
	w := newGuardWithLog(r, nil)
	for _, c := range []struct {
		path, authorization string
		code                int
		closes              bool
	}{{"/metrics", "", 401, true}, {"/metrics", "Bearer wrong", 401, true}, {"/pods", "Bearer right", 403, false}} {
		before := w.dropped
		got := w.send(c.path, c.authorization)
		h := got.Result().Header
		if got.Code != c.code || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" || (h.Get("Connection") == "close") != c.closes || (w.dropped > before) != c.closes {
			t.Errorf("%s with %q: got %d, %v; dismissed %d times", c.path, c.authorization, got.Code, h, w.dropped-before)
		}
	}
	if len(w.admitted) != 0 {
		t.Errorf("admitted %v", w.admitted)
	}
	if w.send("/metrics", "Bearer right"); len(w.admitted) != 1 || !w.admitted[0] {
		t.Errorf("admitted %v, want one that is authenticated", w.admitted)
	}
	open := newGuardWithLog(&reviewer{may: map[string][]string{"system:anonymous": {"healthz"}}}, func(c *Config) { c.Anonymous = true })
	if open.send("/healthz", ""); len(open.admitted) != 1 || open.admitted[0] {
		t.Errorf("admitted %v, want one that is not authenticated", open.admitted)
	}
}

// TestWhyARequestIsRefusedIsLogged, by a message for each reason, a bounded part of the path,
// and not for each request.
func TestWhyARequestIsRefusedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{fails: errors.New("connection refused")}
		w := newGuardWithLog(r, nil)
		long := "/" + strings.Repeat("p", maxLoggedPath)
		w.send(long, "Bearer right")
		if w.logged("its sender is not known") != 1 || w.logged("review a token: connection refused") != 1 || w.logged("path="+long[:maxLoggedPath]+"…") != 1 {
			t.Errorf("of a token: %s", w.log)
		}
		w.send(long[:maxLoggedPath], "Bearer right")
		if w.logged("path="+long[:maxLoggedPath]+" from") != 1 {
			t.Errorf("a path of %d bytes is cut: %s", maxLoggedPath, w.log)
		}
		w.send("/metrics", "") // no credentials are no news
		if got := strings.Count(w.log.String(), "\n"); got != 2 {
			t.Errorf("%d lines:\n%s", got, w.log)
		}
		r.fails = nil
		w.send("/metrics", "Bearer right")
		r.fails = errors.New("connection refused")
		w.send("/stats/summary", "Bearer right")
		if w.logged("the apiserver does not say whether it is allowed") != 1 || w.logged("review access: connection refused") != 1 || w.logged("user=robot") != 1 {
			t.Errorf("of an access: %s", w.log)
		}
		w.log.Reset()
		for i := range 100 {
			w.send(fmt.Sprintf("/stats/%d", i), "Bearer right")
		}
		if got := strings.Count(w.log.String(), "\n"); got != refusedLogBurst-3 {
			t.Errorf("%d lines of a hundred refusals, want what is left of a burst of %d", got, refusedLogBurst)
		}
		time.Sleep(refusedLogInterval)
		w.log.Reset()
		for i := range 100 {
			w.send(fmt.Sprintf("/stats/%d", i), "Bearer right")
		}
		if got := strings.Count(w.log.String(), "\n"); got != 1 {
			t.Errorf("%d lines ten seconds later, want 1", got)
		}
	})
}

// TestUnreviewedTokensAreCountedInTheLog: the first, and a minute later how many there were.
func TestUnreviewedTokensAreCountedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGuardWithLog(&slowReviewer{}, nil)
		many := func() (refused int) {
			for i := range 200 {
				if got := w.send("/metrics", fmt.Sprintf("Bearer made up %d %v", i, time.Now())); got.Result().Header.Get("Retry-After") == retryAfter {
					refused++
				}
			}
			return refused
		}
		first := many()
		if w.logged("requests=1 ") != 1 || first < 100 {
			t.Errorf("%d were refused: %s", first, w.log)
		}
		time.Sleep(unreviewedLogInterval)
		w.log.Reset()
		many()
		if want := fmt.Sprintf("requests=%d ", first-1+1); w.logged(want) != 1 || w.logged("requests=") != 1 {
			t.Errorf("want %s:\n%s", want, w.log)
		}
	})
}

func TestWhichCredentialsCount(t *testing.T) {
	authority := func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }
	ca := certify(t, pkix.Name{CommonName: "ca"}, nil, authority)
	between := certify(t, pkix.Name{CommonName: "between"}, ca, authority)
	alice, below := certify(t, pkix.Name{CommonName: "alice"}, ca, nil), certify(t, pkix.Name{CommonName: "below"}, between, nil)
	stranger, nameless := certify(t, pkix.Name{CommonName: "stranger"}, nil, nil), certify(t, pkix.Name{}, ca, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	w := newGuardWithLog(&reviewer{may: map[string][]string{"robot": {"metrics"}, "alice": {"metrics"}, "below": {"metrics"}}}, func(c *Config) {
		c.ClientCAs = func() *x509.CertPool { return pool }
	})
	for what, c := range map[string]struct {
		authorization string
		chain         []*x509.Certificate
		code          int
		log           string
	}{
		"a certificate":                           {"", []*x509.Certificate{alice.Leaf}, 200, ""},
		"one by an intermediate":                  {"", []*x509.Certificate{below.Leaf, between.Leaf}, 200, ""},
		"one whose intermediate is missing":       {"", []*x509.Certificate{below.Leaf}, 401, `client certificate of \"below\": x509: `},
		"a stranger's":                            {"", []*x509.Certificate{stranger.Leaf}, 401, `client certificate of \"stranger\": x509: `},
		"a nameless one":                          {"", []*x509.Certificate{nameless.Leaf}, 401, "the client certificate has no common name"},
		"a stranger's, and a token":               {"Bearer right", []*x509.Certificate{stranger.Leaf}, 200, ""},
		"a chain without a certificate, no token": {"", []*x509.Certificate{}, 401, ""},
		"a token":                  {"bearer  right ", nil, 200, ""},
		"an empty token":           {"Bearer  ", nil, 401, ""},
		"a password":               {"Basic right", nil, 401, ""},
		"a token without a scheme": {"right", nil, 401, ""},
	} {
		w.log.Reset()
		if got := w.send("/metrics", c.authorization, c.chain...); got.Code != c.code {
			t.Errorf("%s: got %d, want %d", what, got.Code, c.code)
		}
		if c.log == "" && w.log.Len() > 0 || !strings.Contains(w.log.String(), c.log) {
			t.Errorf("%s: logged %q, want %q", what, w.log, c.log)
		}
	}
	for chain, want := range map[*x509.Certificate]bool{alice.Leaf: true, stranger.Leaf: false, nameless.Leaf: false} {
		if got := w.Trusts([]*x509.Certificate{chain}); got != want {
			t.Errorf("trusts %s: %t", chain.Subject, got)
		}
	}
	if newGuardWithLog(&reviewer{}, nil).Trusts([]*x509.Certificate{alice.Leaf}) {
		t.Error("without authorities a certificate is trusted")
	}
	deaf := newGuardWithLog(&reviewer{}, func(c *Config) { c.Tokens = false })
	if got := deaf.send("/metrics", "Bearer right"); got.Code != 401 || deaf.logged("bearer tokens are not accepted (authentication.webhook.enabled)") != 1 {
		t.Errorf("a token where none is accepted: got %d, %s", got.Code, deaf.log)
	}
	all := newGuardWithLog(nil, func(c *Config) { c.Review, c.ClientCAs = false, func() *x509.CertPool { return pool } })
	if got := all.send("/exec/a/b/c", "", alice.Leaf); got.Code != 200 {
		t.Errorf("where access is not reviewed: got %d", got.Code)
	}
}

// deadlines notes how long a review may take.
type deadlines struct {
	reviewer
	access time.Duration
}

func (d *deadlines) ReviewAccess(ctx context.Context, s authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	until, _ := ctx.Deadline()
	d.access = time.Until(until)
	<-ctx.Done()
	return true, context.Cause(ctx)
}

// TestAReviewThatHangsIsARefusalInTime, of access and of a token that was accepted before.
func TestAReviewThatHangsIsARefusalInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{}
		w := newGuardWithLog(d, nil)
		if got := w.send("/metrics", "Bearer right"); got.Code != 500 || d.access != reviewTimeout {
			t.Errorf("got %d, a review may take %v", got.Code, d.access)
		}
		d.hangs = true
		time.Sleep(3 * time.Minute)
		began := time.Now()
		if got := w.send("/metrics", "Bearer right"); got.Code != 401 || time.Since(began) != reviewTimeout {
			t.Errorf("a known token: got %d after %v", got.Code, time.Since(began))
		}
	})
}

// TestManyKnownTokensWaitForTheirTurnNoLongerThanForAReview.
func TestManyKnownTokensWaitForTheirTurnNoLongerThanForAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{}
		h := tokenGuard(r)
		const n = 2 * maxKnownReviews
		ask := func(i int) int { return askFrom(h, fmt.Sprintf("192.0.2.%d:1", i), fmt.Sprint("right ", i)) }
		for i := range n {
			ask(i)
		}
		time.Sleep(3 * time.Minute)
		r.mu.Lock()
		r.takes = time.Hour
		r.mu.Unlock()
		began := time.Now()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if code := ask(i); code != 401 || time.Since(began) != reviewTimeout {
					t.Errorf("token %d: got %d after %v", i, code, time.Since(began))
				}
			})
		}
		all.Wait()
	})
}

// TestOfAcceptedTokensTheOneThatWasNotUsedForLongestGivesWay.
func TestOfAcceptedTokensTheOneThatWasNotUsedForLongestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens()
		hash := func(i int) (h tokenHash) { h[0], h[1] = byte(i), byte(i>>8); return h }
		for i := range maxKnown {
			tokens.accept(hash(i), anonymous, time.Minute)
			time.Sleep(time.Second)
		}
		tokens.isKnown(hash(0)) // used again
		time.Sleep(time.Second)
		tokens.accept(hash(5), anonymous, time.Minute) // known already: nobody gives way
		if len(tokens.lastUsed) != maxKnown {
			t.Errorf("%d are known", len(tokens.lastUsed))
		}
		tokens.accept(hash(maxKnown), anonymous, time.Minute)
		for i, want := range map[int]bool{0: true, 1: false, 2: true, 5: true, maxKnown: true} {
			if _, got := tokens.lastUsed[hash(i)]; got != want {
				t.Errorf("token %d is known: %t, want %t", i, got, want)
			}
		}
	})
}

func TestACacheKeepsAnswersAndNoErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache[int, int]()
		away := errors.New("away")
		asked := 0
		fails := func(context.Context) (int, time.Duration, error) { asked++; return 0, time.Hour, away }
		for range 2 {
			if _, err := c.get(t.Context(), 1, fails); !errors.Is(err, away) {
				t.Errorf("got %v", err)
			}
		}
		if asked != 2 || len(c.all) != 0 {
			t.Errorf("asked %d times, and %d answers are kept", asked, len(c.all))
		}
		// Who waits gives up with its context; the answer is there for the next.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slow := func(context.Context) (int, time.Duration, error) { time.Sleep(time.Minute); return 7, time.Hour, nil }
		if got, err := c.get(ctx, 2, slow); got != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %d, %v", got, err)
		}
		time.Sleep(time.Minute)
		if got, err := c.get(t.Context(), 2, fails); got != 7 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}

		// A full cache drops what has expired first, then what nobody waits for.
		c = newCache[int, int]()
		waiting := make(chan struct{})
		go func() {
			_, _ = c.get(t.Context(), -1, func(context.Context) (int, time.Duration, error) { <-waiting; return 1, time.Hour, nil })
		}()
		for i := range maxCached - 2 {
			c.put(i, i, time.Minute+time.Duration(i%2)*time.Hour)
		}
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		c.put(maxCached, 0, time.Hour)
		if got := len(c.all); got != maxCached {
			t.Errorf("%d answers: dropped before it was full", got)
		}
		c.put(maxCached+1, 0, time.Hour)
		if got := len(c.all); got != maxCached/2+2 {
			t.Errorf("%d answers are left of those that have not expired", got)
		}
		for i := range maxCached {
			c.put(2*maxCached+i, i, time.Hour)
		}
		if _, ok := c.all[-1]; !ok || len(c.all) > maxCached {
			t.Errorf("%d answers; one that somebody waits for is there: %t", len(c.all), ok)
		}
		close(waiting)
	})
}
