package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Client requests tokens.
type Client interface {
	RequestToken(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Listener is notified when a pod's tokens have changed or cannot be obtained. It must not
// block for long.
type Listener interface {
	Changed(uid pod.UID)
}

const (
	// defaultExpirationSeconds is the life of a token if its projection does not set one.
	defaultExpirationSeconds = 3600
	// maxAge is the age at which a token is renewed at the latest. jitter is the most by which
	// that happens earlier (pkg/kubelet/token).
	maxAge = 24 * time.Hour
	jitter = 10 * time.Second
	// maxSleep bounds how late podd notices that the machine was suspended.
	maxSleep = time.Minute
	// maxConcurrentRequests bounds the concurrent requests.
	maxConcurrentRequests = 10
)

// retryBackoff is the back-off for a token that cannot be obtained.
var retryBackoff = wake.Backoff{Initial: 500 * time.Millisecond, Max: time.Minute}

// key identifies a token.
type key struct {
	pod               pod.UID
	account           string
	audience          string
	expirationSeconds int64
}

// token is a token that a pod has or is waiting for. Manager.mu guards it.
type token struct {
	pod *v1.Pod
	// firstRequested is when the token was first asked for.
	firstRequested time.Time
	// value is empty while there is no token. It is invalid after expires.
	value               string
	expires             wake.Moment
	expirationTimestamp metav1.Time // expires, by the apiserver's clock
	err                 error       // of the last request
	inFlight            bool        // a request is in progress
	nextRequest         wake.Moment
	delay               time.Duration
}

// Manager keeps the tokens of the node's pods. Create it with New, and Run it once. The other
// methods may be called by any goroutine at any time; only AwaitToken blocks.
type Manager struct {
	client Client
	log    *slog.Logger
	poke   wake.Signal

	mu          sync.Mutex
	tokens      map[key]*token
	requestDone chan struct{} // closed and replaced after each request
}

// New returns a Manager without tokens.
func New(client Client, log *slog.Logger) *Manager {
	return &Manager{client: client, log: log, poke: wake.New(), tokens: make(map[key]*token), requestDone: make(chan struct{})}
}

// Token returns the token of a pod's projection. If there is none yet, Token requests it and
// notifies the pod later; until then the error is of class pod.ErrObjectPending. The error is
// of class pod.ErrAPIServerUnavailable while the apiserver is away.
func (m *Manager) Token(p *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.tokenLocked(p, s)
	if err != nil {
		return "", err
	}
	return t.value, nil
}

// AwaitToken is Token, but blocks until the token was requested or ctx ends. It also returns when
// the token expires.
func (m *Manager) AwaitToken(ctx context.Context, p *v1.Pod, s *v1.ServiceAccountTokenProjection) (value string, expires metav1.Time, err error) {
	for {
		m.mu.Lock()
		t, err := m.tokenLocked(p, s)
		if err == nil {
			value, expires = t.value, t.expirationTimestamp
		}
		done := m.requestDone
		m.mu.Unlock()
		if !errors.Is(err, pod.ErrObjectPending) {
			return value, expires, err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return "", expires, err
		}
	}
}

func (m *Manager) tokenLocked(p *v1.Pod, s *v1.ServiceAccountTokenProjection) (*token, error) {
	k := key{p.UID, accountOf(p), s.Audience, defaultExpirationSeconds}
	if s.ExpirationSeconds != nil {
		k.expirationSeconds = *s.ExpirationSeconds
	}
	t := m.tokens[k]
	if t == nil {
		t = &token{pod: p, firstRequested: time.Now()}
		m.tokens[k] = t
		m.wake()
	}
	switch {
	case t.value != "" && !t.expires.Reached(time.Now()):
		return t, nil
	case t.value != "":
		m.wake() // woken early, by one of the clocks
	}
	err := fmt.Errorf("failed to fetch token: %w", cmp.Or(t.err, pod.ErrObjectPending))
	if t.err == nil || refused(t.err) {
		return nil, err
	}
	return nil, pod.APIServerUnavailable(err)
}

// refused reports whether the apiserver has answered that it will not issue the token.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code/100 == 4 && !apierrors.IsTooManyRequests(err)
}

func accountOf(p *v1.Pod) string {
	if p.Spec.ServiceAccountName != "" {
		return p.Spec.ServiceAccountName
	}
	return "default"
}

// Forget forgets the tokens of a pod.
func (m *Manager) Forget(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.tokens {
		if k.pod == uid {
			delete(m.tokens, k)
		}
	}
}

func (m *Manager) wake() {
	m.poke.Notify()
}

// Run requests and renews tokens, and notifies the listeners in their order, until ctx ends.
func (m *Manager) Run(ctx context.Context, listeners ...Listener) error {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, maxConcurrentRequests)
	for {
		var timer <-chan time.Time
		if next := m.dispatch(ctx, &work, slots, listeners); !next.IsZero() {
			timer = time.After(min(time.Until(next), maxSleep))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.poke:
		case <-timer:
		}
	}
}

// dispatch starts the requests that are due, and returns when the next one is; zero if
// none is known.
func (m *Manager) dispatch(ctx context.Context, work *sync.WaitGroup, slots chan struct{}, listeners []Listener) (next time.Time) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, t := range m.tokens {
		switch {
		case t.inFlight:
		case !t.nextRequest.Reached(now):
			if next.IsZero() || t.nextRequest.Monotonic.Before(next) {
				next = t.nextRequest.Monotonic
			}
		default:
			t.inFlight = true
			work.Go(func() {
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
				case <-ctx.Done():
					return
				}
				if changed := m.request(ctx, k, t); changed {
					for _, l := range listeners {
						l.Changed(k.pod)
					}
				}
				m.wake()
			})
		}
	}
	return next
}

// request requests a token once. changed says whether the pod must look again.
func (m *Manager) request(ctx context.Context, k key, t *token) (changed bool) {
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &k.expirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: t.pod.Name, UID: t.pod.UID},
	}}
	if k.audience != "" {
		r.Spec.Audiences = []string{k.audience}
	}
	asked := time.Now()
	got, err := m.client.RequestToken(ctx, t.pod.Namespace, k.account, r)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.requestDone)
	m.requestDone = make(chan struct{})
	t.inFlight = false
	if err != nil {
		return m.failedLocked(ctx, t, err)
	}
	// Only this machine's clocks count from here on: the apiserver's clock differs.
	life := time.Duration(k.expirationSeconds) * time.Second
	if until := got.Status.ExpirationTimestamp.Sub(asked); until > 0 && until < life {
		life = until
	}
	t.value, t.err, t.delay, t.expires = got.Status.Token, nil, 0, wake.MomentAt(asked.Add(life))
	t.expirationTimestamp = got.Status.ExpirationTimestamp
	t.nextRequest = wake.MomentAt(asked.Add(min(life*8/10, maxAge) - rand.N(jitter)))
	if t.nextRequest.Reached(asked) {
		t.nextRequest = wake.MomentAt(asked.Add(life / 2))
	}
	return true
}

// failedLocked records why a token request failed, and when to ask again.
func (m *Manager) failedLocked(ctx context.Context, t *token, err error) (changed bool) {
	if apierrors.IsForbidden(err) && time.Since(t.firstRequested) < pod.BindingGrace {
		t.delay = max(2*t.delay, pod.BindingRetry)
		t.nextRequest = wake.MomentAt(time.Now().Add(t.delay))
		return false
	}
	t.delay = retryBackoff.Next(t.delay)
	t.nextRequest = wake.MomentAt(time.Now().Add(t.delay))
	news := t.err == nil || t.err.Error() != err.Error()
	if ctx.Err() == nil && news {
		m.log.Warn("cannot get a service account token: trying again", "pod", t.pod.Namespace+"/"+t.pod.Name, "account", accountOf(t.pod), "error", err)
	}
	t.err = err
	return t.value == "" && news
}
