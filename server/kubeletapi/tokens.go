package kubeletapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"golang.org/x/time/rate"

	"podd/internal/sender"
)

// The bounds of reviews. Anyone who reaches the port can make up tokens, and podd would ask the
// apiserver about each one, with the node's own identity.
const (
	// sourceBurst and sourceEvery limit the unknown tokens of one address. Each scraper in a
	// cluster has a new token every few minutes at most.
	sourceBurst = 10
	sourceEvery = 2 * time.Second
	// maxSourceReviews bounds the reviews of unknown tokens in flight from one address, and
	// maxUnknownReviews those from all addresses.
	maxSourceReviews  = 4
	maxUnknownReviews = 16
	// maxKnownReviews bounds the reviews in flight of tokens that were accepted before. Others
	// wait.
	maxKnownReviews = 16
	// maxSources bounds the addresses that have a limiter of their own. All further addresses
	// share one.
	maxSources = 4096
	// maxKnown bounds the tokens that podd remembers as accepted.
	maxKnown = 1024
	// retryAfter is the value of the Retry-After header, in seconds. unreviewedLogInterval is
	// the least time between two log messages.
	retryAfter            = "2"
	unreviewedLogInterval = time.Minute
)

// errTooMany refuses a token without a review.
var errTooMany = errors.New("too many unknown tokens: this one was not reviewed")

// tokens finds the user that a token belongs to. There are two lanes to the apiserver: one for
// tokens that it accepted when it was last asked, and one for all others. Answers and reviews
// in the second lane never displace those in the first. Tokens are stored as hashes.
type tokens struct {
	knownCache, unknownCache *cache[tokenHash, *user]
	knownReviews             chan struct{} // one slot for each review in flight

	mu           sync.Mutex
	lastUsed     map[tokenHash]time.Time // when the token was last used
	sources      map[netip.Prefix]*source
	sharedSource *source // shared by addresses beyond maxSources
	swept        time.Time
	inFlight     int // reviews of unknown tokens
	refused      int // since the last log message
	lastLogged   time.Time
}

type tokenHash [sha256.Size]byte

// source limits the unknown tokens of one address.
type source struct {
	limit    *rate.Limiter
	inFlight int // guarded by tokens.mu
}

func newSource() *source {
	return &source{limit: rate.NewLimiter(rate.Every(sourceEvery), sourceBurst)}
}

func newTokens() *tokens {
	return &tokens{
		knownCache: newCache[tokenHash, *user](), unknownCache: newCache[tokenHash, *user](), knownReviews: make(chan struct{}, maxKnownReviews),
		lastUsed: map[tokenHash]time.Time{}, sources: map[netip.Prefix]*source{}, sharedSource: newSource(),
	}
}

// userOfToken returns the user that a token belongs to, or nil for nobody. from is the sender's
// address. The error is errTooMany if an unknown token exceeds its sender's share.
func (g *Guard) userOfToken(ctx context.Context, token, from string) (*user, error) {
	hash := tokenHash(sha256.Sum256([]byte(token)))
	t := g.tokens
	if t.isKnown(hash) {
		return t.knownCache.get(ctx, hash, func(ctx context.Context) (*user, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
			defer cancel()
			select {
			case t.knownReviews <- struct{}{}:
				defer func() { <-t.knownReviews }()
			case <-ctx.Done():
				return nil, 0, fmt.Errorf("review a token: %w", context.Cause(ctx))
			}
			return g.review(ctx, token, hash)
		})
	}
	return t.unknownCache.get(ctx, hash, func(ctx context.Context) (*user, time.Duration, error) {
		release, ok := t.acquireReview(from)
		if !ok {
			return nil, 0, errTooMany
		}
		defer release()
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		return g.review(ctx, token, hash)
	})
}

// review asks the apiserver, and notes whether it accepts the token.
func (g *Guard) review(ctx context.Context, token string, hash tokenHash) (*user, time.Duration, error) {
	info, authenticated, err := g.cfg.Reviewer.ReviewToken(ctx, token)
	if err != nil {
		return nil, 0, fmt.Errorf("review a token: %w", err)
	}
	if !authenticated {
		g.tokens.forget(hash)
		return nil, g.cfg.TokenTTL, nil
	}
	u := &user{name: info.Username, uid: info.UID, groups: info.Groups, extra: map[string]authorizationv1.ExtraValue{}}
	for key, value := range info.Extra {
		u.extra[key] = authorizationv1.ExtraValue(value)
	}
	g.tokens.accept(hash, u, g.cfg.TokenTTL)
	return u, g.cfg.TokenTTL, nil
}

func (t *tokens) isKnown(hash tokenHash) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.lastUsed[hash]
	if ok {
		t.lastUsed[hash] = time.Now()
	}
	return ok
}

// accept adds a token to the known ones. The one that has gone unused for longest makes room.
func (t *tokens) accept(hash tokenHash, u *user, ttl time.Duration) {
	if !t.isKnown(hash) {
		// The answer came through the lane for unknown tokens. Put it in the known lane before
		// anybody asks there.
		t.knownCache.put(hash, u, ttl)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, already := t.lastUsed[hash]; !already && len(t.lastUsed) >= maxKnown {
		t.dropOldestLocked()
	}
	t.lastUsed[hash] = time.Now()
}

func (t *tokens) dropOldestLocked() {
	var oldest tokenHash
	var since time.Time
	for h, used := range t.lastUsed {
		if since.IsZero() || used.Before(since) {
			oldest, since = h, used
		}
	}
	delete(t.lastUsed, oldest)
}

func (t *tokens) forget(hash tokenHash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lastUsed, hash)
}

// acquireReview reserves a review for an unknown token from an address. release ends it.
func (t *tokens) acquireReview(from string) (release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	address, _ := netip.ParseAddrPort(from)
	s := t.sourceLocked(sender.Prefix(address.Addr()))
	if t.inFlight >= maxUnknownReviews || s.inFlight >= maxSourceReviews || !s.limit.Allow() {
		return nil, false
	}
	t.inFlight++
	s.inFlight++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.inFlight--
		s.inFlight--
	}, true
}

// logUnreviewed logs tokens that were refused without a review. It logs the first one, and
// later how many there were.
func (g *Guard) logUnreviewed(from string) {
	t := g.tokens
	t.mu.Lock()
	t.refused++
	n, due := t.refused, time.Since(t.lastLogged) >= unreviewedLogInterval
	if due {
		t.refused, t.lastLogged = 0, time.Now()
	}
	t.mu.Unlock()
	if due {
		g.log.Warn("refused requests: their senders' addresses send more unknown tokens than are reviewed", "requests", n, "from", from)
	}
}

// sourceLocked returns the limiter of an address. Addresses that have used nothing lately make
// room for it.
func (t *tokens) sourceLocked(address netip.Prefix) *source {
	if s := t.sources[address]; s != nil {
		return s
	}
	if len(t.sources) >= maxSources && time.Since(t.swept) >= sourceEvery {
		t.swept = time.Now()
		for a, s := range t.sources {
			if s.inFlight == 0 && s.limit.Tokens() >= sourceBurst {
				delete(t.sources, a)
			}
		}
	}
	if len(t.sources) >= maxSources {
		return t.sharedSource
	}
	s := newSource()
	t.sources[address] = s
	return s
}
