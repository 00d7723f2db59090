package kubeletapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// reviewer knows the token "right" as robot's, and what users may do; it counts questions.
type reviewer struct {
	mu      sync.Mutex
	users   map[string]authenticationv1.UserInfo // more of them, by token
	may     map[string][]string                  // subresources by user
	tokens  int
	reviews []string
	specs   []authorizationv1.SubjectAccessReviewSpec
	fails   error
	hangs   bool
}

func (r *reviewer) ReviewToken(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
	r.mu.Lock()
	r.tokens++
	fails, hangs := r.fails, r.hangs
	u, known := r.users[token]
	r.mu.Unlock()
	if known {
		return u, true, nil
	}
	if hangs {
		<-ctx.Done()
		return authenticationv1.UserInfo{}, false, context.Cause(ctx)
	}
	return authenticationv1.UserInfo{Username: "robot", UID: "7", Groups: []string{"robots"}}, token == "right", fails
}

func (r *reviewer) ReviewAccess(_ context.Context, s authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := s.ResourceAttributes
	r.specs = append(r.specs, s)
	r.reviews = append(r.reviews, fmt.Sprintf("%s %s %s/%s/%s", s.User, a.Verb, a.Resource, a.Name, a.Subresource))
	return slices.Contains(r.may[s.User], a.Subresource), r.fails
}

func guard(r *reviewer, change func(c *Config)) http.Handler {
	c := Config{Node: "node0", Tokens: true, TokenTTL: 2 * time.Minute, Review: true, AllowedTTL: 5 * time.Minute, DeniedTTL: 30 * time.Second, Reviewer: r, Subresources: subresourcesOf}
	if change != nil {
		change(&c)
	}
	return NewGuard(c).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) }))
}

// subresourcesOf are those that a test asks for.
func subresourcesOf(path string) []string {
	switch path {
	case "/healthz":
		return []string{"healthz", "proxy"}
	case "/metrics":
		return []string{"metrics"}
	case "/stats/summary":
		return []string{"stats"}
	}
	return []string{"proxy"}
}

// ask sends a request with a token, or none.
func ask(h http.Handler, method, path, token string) (code int, body string) {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Every path × {no credentials, wrong token, right token without rights, right token}.
func TestWhoMayAskWhat(t *testing.T) {
	for path, subresources := range map[string][]string{
		"/healthz": {"healthz", "proxy"}, "/metrics": {"metrics"}, "/exec/a/b/c": {"proxy"},
	} {
		r := &reviewer{}
		h := guard(r, nil)
		for _, token := range []string{"", "wrong"} {
			if code, body := ask(h, "GET", path, token); code != 401 || body != "Unauthorized" {
				t.Errorf("%s with token %q: got %d %q", path, token, code, body)
			}
		}
		want := fmt.Sprintf("Forbidden (user=robot, verb=get, resource=nodes, subresource(s)=%v)\n", subresources)
		if code, body := ask(h, "GET", path, "right"); code != 403 || body != want {
			t.Errorf("%s without rights: got %d %q, want %q", path, code, body, want)
		}
		for i, subresource := range subresources {
			if want := "robot get nodes/node0/" + subresource; len(r.reviews) <= i || r.reviews[i] != want {
				t.Errorf("%s: asked %q, want %q", path, r.reviews, want)
			}
			if code, body := ask(guard(&reviewer{may: map[string][]string{"robot": {subresource}}}, nil), "GET", path, "right"); code != 200 || body != "served" {
				t.Errorf("%s with nodes/%s: got %d %q", path, subresource, code, body)
			}
		}
	}
}

func TestVerbs(t *testing.T) {
	for method, verb := range map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": ""} {
		r := &reviewer{}
		ask(guard(r, nil), method, "/exec/a/b/c", "right")
		if want := []string{"robot " + verb + " nodes/node0/proxy"}; !slices.Equal(r.reviews, want) {
			t.Errorf("%s: asked %q, want %q", method, r.reviews, want)
		}
	}
}

func TestAnonymousRequestsAreSomebodyIfConfigured(t *testing.T) {
	r := &reviewer{may: map[string][]string{"system:anonymous": {"healthz"}}}
	h := guard(r, func(c *Config) { c.Anonymous = true })
	if code, _ := ask(h, "GET", "/healthz", ""); code != 200 {
		t.Errorf("got %d", code)
	}
	if code, body := ask(h, "GET", "/pods", ""); code != 403 || !strings.Contains(body, "user=system:anonymous") {
		t.Errorf("got %d %q", code, body)
	}
	if code, _ := ask(h, "GET", "/healthz", "wrong"); code != 401 {
		t.Errorf("a wrong token: got %d: it must not count as none", code)
	}
}

func TestAnApiserverThatDoesNotAnswerIsARefusal(t *testing.T) {
	r := &reviewer{fails: errors.New("connection refused")}
	if code, _ := ask(guard(r, nil), "GET", "/pods", "right"); code != 401 {
		t.Errorf("of the token: got %d", code)
	}
	h := guard(r, func(c *Config) { c.Anonymous = true })
	if code, body := ask(h, "GET", "/metrics", ""); code != 500 || body != "Authorization error (user=system:anonymous, verb=get, resource=nodes, subresource=metrics)" {
		t.Errorf("of the access: got %d %q", code, body)
	}
	r.fails, r.may = nil, map[string][]string{"system:anonymous": {"metrics"}}
	if code, _ := ask(h, "GET", "/metrics", ""); code != 200 {
		t.Errorf("an error must not be kept: got %d", code)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if code, _ := ask(guard(&reviewer{hangs: true}, nil), "GET", "/pods", "right"); code != 401 || time.Since(began) > reviewTimeout {
			t.Errorf("one that hangs: got %d after %v", code, time.Since(began))
		}
	})
}

func TestAnswersServeForAWhileAndOneQuestionIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{may: map[string][]string{"robot": {"metrics"}}}
		h := guard(r, nil)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { ask(h, "GET", "/metrics", "right") })
		}
		all.Wait()
		if r.tokens != 1 || len(r.reviews) != 1 {
			t.Errorf("50 at once: asked %d times for the token and %d times for the access", r.tokens, len(r.reviews))
		}
		r.may = nil
		time.Sleep(time.Minute)
		if code, _ := ask(h, "GET", "/metrics", "right"); code != 200 {
			t.Errorf("after a minute: got %d", code)
		}
		time.Sleep(5 * time.Minute)
		if code, _ := ask(h, "GET", "/metrics", "right"); code != 403 {
			t.Errorf("after six minutes: got %d", code)
		}
		r.may = map[string][]string{"robot": {"metrics"}}
		time.Sleep(31 * time.Second)
		if code, _ := ask(h, "GET", "/metrics", "right"); code != 200 {
			t.Errorf("half a minute after a refusal: got %d", code)
		}
	})
}

// An answer about one user is not another's, whatever they have in common; and the apiserver
// is asked about all that the token's review has said.
func TestAnAnswerAboutAccessIsForOneUserAlone(t *testing.T) {
	users := map[string]authenticationv1.UserInfo{
		"plain":         {Username: "ann"},
		"another uid":   {Username: "ann", UID: "8"},
		"in a group":    {Username: "ann", Groups: []string{"ops"}},
		"in two groups": {Username: "ann", Groups: []string{"ops", "dev"}},
		"in their one":  {Username: "ann", Groups: []string{"ops dev"}},
		"with an extra": {Username: "ann", Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}}},
		"with another":  {Username: "ann", Extra: map[string]authenticationv1.ExtraValue{"scope": {"b"}}},
	}
	r := &reviewer{users: users}
	h := guard(r, nil)
	for token, u := range users {
		before := len(r.specs)
		for range 2 { // the second answer is the first one's
			ask(h, "GET", "/metrics", token)
		}
		if len(r.specs) != before+1 {
			t.Errorf("%s: asked %d times, want once", token, len(r.specs)-before)
			continue
		}
		got := r.specs[before]
		if got.User != u.Username || got.UID != u.UID || !slices.Equal(got.Groups, u.Groups) || len(got.Extra) != len(u.Extra) || !slices.Equal(got.Extra["scope"], authorizationv1.ExtraValue(u.Extra["scope"])) {
			t.Errorf("%s: asked about %+v, want %+v", token, got, u)
		}
	}
	for _, path := range []string{"/stats/summary", "/metrics"} { // one more of another subresource, none of this
		ask(h, "GET", path, "plain")
	}
	ask(h, "POST", "/metrics", "plain") // and another verb
	if want := len(users) + 2; len(r.specs) != want {
		t.Errorf("asked %d times, want %d", len(r.specs), want)
	}
}

func TestTheCachesAreBounded(t *testing.T) {
	r := &reviewer{}
	g := NewGuard(Config{Tokens: true, TokenTTL: time.Hour, Reviewer: r})
	for i := range 3 * maxCached {
		askFrom(g.Wrap(http.NotFoundHandler()), fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), fmt.Sprint("token", i))
	}
	if n := len(g.tokens.unknownCache.all); n > maxCached {
		t.Errorf("%d answers are kept", n)
	}
}

// certify makes a certificate; by nil it signs itself.
func certify(t *testing.T, subject pkix.Name, by *tls.Certificate, change func(c *x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(c)
	}
	parent, signer := c, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestClientCertificates(t *testing.T) {
	authority := func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }
	ca, other := certify(t, pkix.Name{CommonName: "ca"}, nil, authority), certify(t, pkix.Name{CommonName: "other"}, nil, authority)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	r := &reviewer{may: map[string][]string{"alice": {"proxy"}}}
	h := guard(r, func(c *Config) { c.ClientCAs, c.Anonymous = func() *x509.CertPool { return pool }, true })
	alice := pkix.Name{CommonName: "alice", Organization: []string{"admins"}}
	for name, c := range map[string]struct {
		certificate *tls.Certificate
		want        int
	}{
		"of the cluster": {certify(t, alice, ca, nil), 200},
		"of another":     {certify(t, alice, other, nil), 401},
		"expired":        {certify(t, alice, ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), 401},
		"a server's":     {certify(t, alice, ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), 401},
		"nameless":       {certify(t, pkix.Name{Organization: []string{"admins"}}, ca, nil), 401},
		"of no rights":   {certify(t, pkix.Name{CommonName: "bob"}, ca, nil), 403},
	} {
		request := httptest.NewRequest("GET", "/exec/a/b/c", nil)
		request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.certificate.Leaf}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if w.Code != c.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
}
