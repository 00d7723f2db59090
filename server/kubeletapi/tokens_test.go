package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// slowReviewer accepts tokens that begin with "right", after a while, and counts.
type slowReviewer struct {
	takes time.Duration

	mu                      sync.Mutex
	reviews, inFlight, most int
	revoked                 map[string]bool
}

func (r *slowReviewer) ReviewToken(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
	r.mu.Lock()
	r.reviews++
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	known := len(token) >= 5 && token[:5] == "right" && !r.revoked[token]
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.inFlight--
		r.mu.Unlock()
	}()
	select {
	case <-time.After(r.takes):
		return authenticationv1.UserInfo{Username: token}, known, nil
	case <-ctx.Done():
		return authenticationv1.UserInfo{}, false, context.Cause(ctx)
	}
}

func (r *slowReviewer) ReviewAccess(context.Context, authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	return true, nil
}

func (r *slowReviewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reviews
}

func tokenGuard(r Reviewer) http.Handler {
	g := NewGuard(Config{Node: "node0", Tokens: true, TokenTTL: 2 * time.Minute, Reviewer: r})
	return g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func askFrom(h http.Handler, from, token string) int {
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestMadeUpTokensAreReviewedAtALimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{}
		h := tokenGuard(r)
		codes := map[int]int{}
		for i := range 2000 { // for 100 s
			codes[askFrom(h, fmt.Sprintf("192.0.2.7:%d", 1024+i), fmt.Sprint("made up ", i))]++
			time.Sleep(50 * time.Millisecond)
		}
		if want := sourceBurst + int(100*time.Second/sourceEvery); r.count() > want || r.count() < want-1 {
			t.Errorf("%d made-up tokens were reviewed in 100 s, want %d", r.count(), want)
		}
		if codes[401] != 2000 {
			t.Errorf("answers by code: %v, want 401 with and without a review", codes)
		}
		// Another address is not theirs.
		if code := askFrom(h, "192.0.2.8:1", "right"); code != 200 {
			t.Errorf("a right token of another address: got %d", code)
		}
	})
}

func TestAnAcceptedTokenIsReviewedAgainWhateverStrangersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{takes: 5 * time.Second, revoked: map[string]bool{}}
		h := tokenGuard(r)
		const scraper = "192.0.2.1:9"
		if code := askFrom(h, scraper, "right"); code != 200 {
			t.Fatalf("its first request: got %d", code)
		}
		// Unknown tokens from many addresses, its own among them, hold as many reviews as they can.
		ctx, stop := context.WithCancel(t.Context())
		var strangers sync.WaitGroup
		defer func() { stop(); strangers.Wait() }()
		for i := range 100 {
			strangers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					askFrom(h, fmt.Sprintf("192.0.2.%d:1", 1+i%50), fmt.Sprint("made up ", i, " ", n))
					time.Sleep(20 * time.Second)
				}
			})
		}
		for range 10 {
			time.Sleep(3 * time.Minute) // its answer has expired
			asked := time.Now()
			if code := askFrom(h, scraper, "right"); code != 200 || time.Since(asked) > r.takes {
				t.Errorf("got %d after %v, want 200 as soon as the apiserver has answered", code, time.Since(asked))
			}
		}
		// A token that is not accepted any more is unknown.
		r.mu.Lock()
		if r.most > maxUnknownReviews+1 || r.most < maxUnknownReviews {
			t.Errorf("%d reviews were in flight, want at most %d of strangers, and those", r.most, maxUnknownReviews)
		}
		r.revoked["right"] = true
		r.mu.Unlock()
		time.Sleep(3 * time.Minute)
		if code := askFrom(h, scraper, "right"); code != 401 {
			t.Errorf("revoked: got %d", code)
		}
		time.Sleep(3 * time.Minute)
		if code := askFrom(h, scraper, "right"); code != 401 {
			t.Errorf("revoked, again: got %d", code)
		}
	})
}

func TestAnAnswerToAKnownTokenIsNotDroppedForStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{}
		h := tokenGuard(r)
		askFrom(h, "192.0.2.1:9", "right")
		for i := range 2 * maxCached {
			askFrom(h, fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), fmt.Sprint("made up ", i))
		}
		before := r.count()
		if code := askFrom(h, "192.0.2.1:9", "right"); code != 200 || r.count() != before {
			t.Errorf("got %d after %d more reviews, want the answer of before", code, r.count()-before)
		}
	})
}

func TestKnownTokensInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{takes: time.Second}
		h := tokenGuard(r)
		const n = 3 * maxKnownReviews
		for round := range 2 {
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					if round == 0 {
						time.Sleep(time.Duration(i) * 2 * time.Second)
					}
					if code := askFrom(h, fmt.Sprintf("192.0.2.%d:1", i), fmt.Sprint("right ", i)); code != 200 {
						t.Errorf("round %d, token %d: got %d", round, i, code)
					}
				})
			}
			all.Wait()
			time.Sleep(3 * time.Minute) // the answers have expired
		}
		if r.most != maxKnownReviews {
			t.Errorf("%d reviews were in flight, want %d", r.most, maxKnownReviews)
		}
	})
}

func TestSourcesAreBounded(t *testing.T) {
	g := NewGuard(Config{Tokens: true, TokenTTL: time.Hour, Reviewer: &slowReviewer{}})
	h := g.Wrap(http.NotFoundHandler())
	for i := range 2 * maxSources {
		askFrom(h, fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), fmt.Sprint("made up ", i))
	}
	for i := range 2 * maxKnown {
		askFrom(h, fmt.Sprintf("10.2.%d.%d:1", i/256, i%256), fmt.Sprint("right ", i))
	}
	if n := len(g.tokens.sources); n > maxSources {
		t.Errorf("%d addresses have a limiter of their own", n)
	}
	if n := len(g.tokens.lastUsed); n > maxKnown {
		t.Errorf("%d accepted tokens are known", n)
	}
}
