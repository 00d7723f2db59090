package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podd/internal/pod"
)

// server issues numbered tokens, unless it is away.
type server struct {
	mu     sync.Mutex
	issued []authenticationv1.TokenRequest
	away   bool
	err    error         // instead of a token
	hold   chan struct{} // requests wait until it is closed, if it is set
	clock  time.Duration // by how much it is ahead
	refuse time.Time     // until when nodes have no relationship with any pod
	asked  int
}

func (s *server) RequestToken(_ context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if hold := s.hold; hold != nil {
		s.mu.Unlock()
		<-hold
		s.mu.Lock()
	}
	if s.away {
		return nil, errors.New("connection refused")
	}
	if s.err != nil {
		return nil, s.err
	}
	if time.Now().Before(s.refuse) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, account, errors.New("no relationship found between node and this object"))
	}
	out := r.DeepCopy()
	s.issued = append(s.issued, *out)
	out.Status.Token = fmt.Sprintf("%s/%s %d", namespace, account, len(s.issued))
	out.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(s.clock + time.Duration(*r.Spec.ExpirationSeconds)*time.Second))
	return out, nil
}

func (s *server) set(away bool) { s.mu.Lock(); defer s.mu.Unlock(); s.away = away }

func (s *server) count() int { s.mu.Lock(); defer s.mu.Unlock(); return s.asked }

type notified struct {
	mu sync.Mutex
	n  int
}

func (c *notified) Changed(pod.UID) { c.mu.Lock(); defer c.mu.Unlock(); c.n++ }

func (c *notified) take() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = 0
	return n
}

func managing(t *testing.T, run func(m *Manager, s *server, c *notified)) {
	t.Helper()
	managingLogged(t, func(m *Manager, s *server, c *notified, _ func() int) { run(m, s, c) })
}

// managingLogged also has the number of warnings until now.
func managingLogged(t *testing.T, run func(m *Manager, s *server, c *notified, warned func() int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, c := &server{}, &notified{}
		var log bytes.Buffer
		m := New(s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx, c) }()
		run(m, s, c, func() int { synctest.Wait(); return strings.Count(log.String(), "level=WARN") })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func web() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"}, Spec: v1.PodSpec{ServiceAccountName: "robot"}}
}

func projection(seconds int64) *v1.ServiceAccountTokenProjection {
	return &v1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: &seconds, Path: "token"}
}

func TestATokenIsOfThePodAndItsAccount(t *testing.T) {
	managing(t, func(m *Manager, s *server, c *notified) {
		p := web()
		if _, err := m.Token(p, projection(600)); !errors.Is(err, pod.ErrObjectPending) {
			t.Errorf("at first: got %v", err)
		}
		if n := c.take(); n != 1 {
			t.Errorf("notified %d times", n)
		}
		for range 3 {
			if got, err := m.Token(p, projection(600)); got != "shop/robot 1" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
		r := s.issued[0].Spec
		if len(s.issued) != 1 || r.BoundObjectRef.UID != "uid-1" || r.BoundObjectRef.Kind != "Pod" || r.BoundObjectRef.Name != "web" || r.Audiences[0] != "vault" || *r.ExpirationSeconds != 600 {
			t.Errorf("got %+v", s.issued)
		}
	})
}

// The apiserver's authorizer learns a moment later than the node which pods are bound to it.
func TestARefusalIsNoFailureOfAPodThatWasJustBound(t *testing.T) {
	for _, c := range []struct {
		refuses time.Duration
		failed  bool
	}{{30 * time.Millisecond, false}, {time.Second, false}, {time.Hour, true}} {
		managing(t, func(m *Manager, s *server, n *notified) {
			s.refuse = time.Now().Add(c.refuses)
			p := web()
			_, _ = m.Token(p, projection(600))
			time.Sleep(pod.BindingGrace - time.Millisecond)
			// After 50, 150, 350, 750 and 1,550 ms again.
			if n := s.count(); c.failed && n != 6 || n > 6 {
				t.Errorf("refused for %v: asked %d times within the grace", c.refuses, n)
			}
			if _, err := m.Token(p, projection(600)); err != nil && !errors.Is(err, pod.ErrObjectPending) || (err != nil) != c.failed {
				t.Errorf("refused for %v: got %v within the grace", c.refuses, err)
			}
			time.Sleep(pod.BindingGrace)
			if _, err := m.Token(p, projection(600)); apierrors.IsForbidden(err) != c.failed || n.take() != 1 {
				t.Errorf("refused for %v: got %v after the grace", c.refuses, err)
			}
		})
	}
}

func TestATokenIsRenewedWhenAFifthOfItsLifeIsLeftAndOnceADay(t *testing.T) {
	for seconds, every := range map[int64]time.Duration{3600: 48 * time.Minute, 7 * 24 * 3600: 24 * time.Hour} {
		managing(t, func(m *Manager, s *server, c *notified) {
			p := web()
			_, _ = m.Token(p, projection(seconds))
			time.Sleep(every - jitter - time.Second)
			if n := s.count(); n != 1 {
				t.Errorf("%d s: asked %d times before it is due", seconds, n)
			}
			c.take()
			time.Sleep(jitter + 2*time.Second)
			if got, err := m.Token(p, projection(seconds)); got != "shop/robot 2" || err != nil || c.take() != 1 {
				t.Errorf("%d s: got %q, %v", seconds, got, err)
			}
		})
	}
}

func TestAnOldTokenServesUntilItExpiresWhileTheApiserverIsAway(t *testing.T) {
	managing(t, func(m *Manager, s *server, c *notified) {
		p := web()
		_, _ = m.Token(p, projection(600))
		synctest.Wait()
		s.set(true)
		time.Sleep(599 * time.Second)
		if got, err := m.Token(p, projection(600)); got != "shop/robot 1" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		time.Sleep(2 * time.Second)
		if got, err := m.Token(p, projection(600)); got != "" || err == nil || err.Error() != "failed to fetch token: connection refused" {
			t.Errorf("expired: got %q, %v", got, err)
		}
		if n := s.count(); n > 20 {
			t.Errorf("asked %d times in two minutes", n)
		}
		s.set(false)
		time.Sleep(retryBackoff.Max + time.Second)
		if got, err := m.Token(p, projection(600)); got != "shop/robot 2" || err != nil {
			t.Errorf("back: got %q, %v", got, err)
		}
	})
}

// The clocks of a machine and of its apiserver differ, for a while by years.
func TestTokensAreRenewedInTimeWhateverTheClocksSay(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * 365 * 24 * time.Hour, -10 * time.Hour, -5 * time.Minute, 0, 10 * time.Hour, 10 * 365 * 24 * time.Hour} {
		managing(t, func(m *Manager, s *server, c *notified) {
			s.clock = ahead
			p, projection := web(), &v1.ServiceAccountTokenProjection{}
			if _, err := m.Token(p, projection); !errors.Is(err, pod.ErrObjectPending) {
				t.Fatalf("%s ahead: got %v", ahead, err)
			}
			for range 24 * 60 {
				time.Sleep(time.Minute)
				synctest.Wait()
				if value, err := m.Token(p, projection); err != nil || value == "" {
					t.Fatalf("%s ahead: got %q, %v", ahead, value, err)
				}
			}
			// One in 48 minutes; in 44 where the apiserver's life is five minutes shorter.
			want := 30
			if ahead == -5*time.Minute {
				want = 33
			}
			if n := s.count(); n < want || n > want+1 {
				t.Errorf("%s ahead: %d requests a day, want some %d", ahead, n, want)
			}
		})
	}
}

// suspend has the machine's wall clock go on for d while the monotonic one stands still: to
// the tokens, whatever they remember was that much earlier by the wall clock.
func (m *Manager) suspend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		t.expires.Wall, t.nextRequest.Wall = t.expires.Wall.Add(-d), t.nextRequest.Wall.Add(-d)
	}
}

func TestAfterASuspendTokensAreRenewedWithinAMinuteAndExpiredOnesNotUsed(t *testing.T) {
	for _, c := range []struct {
		sleeps  time.Duration
		expired bool
	}{{55 * time.Minute, false}, {2 * time.Hour, true}} {
		managing(t, func(m *Manager, s *server, n *notified) {
			p := web()
			_, _ = m.Token(p, projection(3607))
			time.Sleep(10*time.Minute + 5*time.Second)
			n.take()
			m.suspend(c.sleeps - 10*time.Minute)
			time.Sleep(time.Minute)
			if got, err := m.Token(p, projection(3607)); got != "shop/robot 2" || err != nil || n.take() != 1 {
				t.Errorf("a minute after %v: got %q, %v", c.sleeps, got, err)
			}
			m.suspend(c.sleeps)
			got, err := m.Token(p, projection(3607)) // which asks for another, if it has expired
			if c.expired != errors.Is(err, pod.ErrObjectPending) || c.expired != (n.take() == 1) {
				t.Errorf("after %v: got %q, %v", c.sleeps, got, err)
			}
			if got, err := m.Token(p, projection(3607)); c.expired != (got == "shop/robot 3") || err != nil {
				t.Errorf("after %v: then got %q, %v", c.sleeps, got, err)
			}
			m.suspend(-3 * time.Hour) // somebody sets the clock back
			time.Sleep(50 * time.Minute)
			if _, err := m.Token(p, projection(3607)); err != nil || n.take() == 0 {
				t.Errorf("with a clock that is behind: got %v, or no other token", err)
			}
		})
	}
}

func TestTokensOfAPodThatIsGoneAreNotRenewed(t *testing.T) {
	managing(t, func(m *Manager, s *server, c *notified) {
		_, _ = m.Token(web(), projection(600))
		synctest.Wait()
		m.Forget("uid-1")
		time.Sleep(24 * time.Hour)
		if n := s.count(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestAwaitReturnsWithTheTokenOrTheReason(t *testing.T) {
	managing(t, func(m *Manager, s *server, _ *notified) {
		s.set(true)
		if got, _, err := m.AwaitToken(context.Background(), web(), projection(600)); got != "" || err == nil || err.Error() != "failed to fetch token: connection refused" {
			t.Errorf("away: got %q, %v", got, err)
		}
		s.set(false)
		time.Sleep(time.Minute)
		began := time.Now()
		for range 2 { // the second time, it is there
			got, expires, err := m.AwaitToken(context.Background(), web(), projection(900))
			if got != "shop/robot 2" || err != nil || !expires.Time.Equal(began.Add(900*time.Second)) {
				t.Errorf("got %q until %s, %v", got, expires, err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := m.AwaitToken(ctx, web(), projection(1200)); !errors.Is(err, pod.ErrObjectPending) {
			t.Errorf("canceled: got %v", err)
		}
	})
}

func TestAnAnswerIsToldFromSilence(t *testing.T) {
	pods := schema.GroupResource{Resource: "serviceaccounts"}
	for _, c := range []struct {
		err     error
		refused bool
	}{
		{errors.New("connection refused"), false},
		{apierrors.NewServiceUnavailable("starting"), false},
		{apierrors.NewTooManyRequests("slow down", 1), false},
		{apierrors.NewInternalError(errors.New("etcd")), false},
		{apierrors.NewNotFound(pods, "robot"), true},
		{apierrors.NewForbidden(pods, "robot", errors.New("another node's")), true},
	} {
		if got := refused(fmt.Errorf("request: %w", c.err)); got != c.refused {
			t.Errorf("%v: got %t, want %t", c.err, got, c.refused)
		}
	}
}

// A token whose life is over at once by this machine's clock has the life that was asked
// for; one of a few seconds is renewed after half of them.
func TestTokensOfALifeOfSeconds(t *testing.T) {
	for _, c := range []struct {
		ahead       time.Duration
		least, most int // requests in a minute
	}{{-600 * time.Second, 1, 1}, {-595 * time.Second, 12, 60}} {
		managing(t, func(m *Manager, s *server, _ *notified) {
			s.clock = c.ahead
			_, _ = m.Token(web(), projection(600))
			time.Sleep(time.Minute)
			if n := s.count(); n < c.least || n > c.most {
				t.Errorf("%v ahead: %d requests in a minute, want %d to %d", c.ahead, n, c.least, c.most)
			}
		})
	}
}

func TestEachTokenIsRenewedInItsTime(t *testing.T) {
	managing(t, func(m *Manager, s *server, _ *notified) {
		for _, seconds := range []int64{7200, 615, 3600} {
			_, _ = m.Token(web(), projection(seconds))
		}
		time.Sleep(493 * time.Second) // 0.8 × 615 s
		if n := s.count(); n != 4 {
			t.Errorf("asked %d times, want once for each and once more for the shortest", n)
		}
	})
}

// What the apiserver says is the pod's to show. That it is away is nobody's fault, and does
// not end what runs; the old token serves meanwhile, and nobody need look.
func TestAReasonIsToldOnceAndOnlyAnAnswerIsOne(t *testing.T) {
	managingLogged(t, func(m *Manager, s *server, c *notified, warned func() int) {
		tell := func(what string, warnings, notes int) {
			t.Helper()
			if got := warned(); got != warnings {
				t.Errorf("%s: warned %d times, want %d", what, got, warnings)
			}
			if got := c.take(); got != notes {
				t.Errorf("%s: notified %d times, want %d", what, got, notes)
			}
		}
		ask := func() error { _, err := m.Token(web(), projection(600)); return err }
		s.set(true)
		_ = ask()
		time.Sleep(5 * time.Minute)
		tell("away", 1, 1)
		if err := ask(); !errors.Is(err, pod.ErrAPIServerUnavailable) {
			t.Errorf("away: got %v", err)
		}
		s.mu.Lock()
		s.away, s.err = false, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "robot")
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		tell("refused", 2, 1)
		if err := ask(); !apierrors.IsNotFound(err) || errors.Is(err, pod.ErrAPIServerUnavailable) || errors.Is(err, pod.ErrObjectPending) {
			t.Errorf("refused: got %v", err)
		}
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		time.Sleep(retryBackoff.Max)
		tell("issued", 2, 1)
		s.set(true)
		time.Sleep(8*time.Minute + 30*time.Second)
		tell("away while it serves", 3, 0)
		if err := ask(); err != nil {
			t.Errorf("while it serves: got %v", err)
		}
	})
}

// TestRunEndsAfterItsRequests and tells nothing of those that its end broke off.
func TestRunEndsAfterItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{hold: make(chan struct{}), err: errors.New("canceled")}
		var log bytes.Buffer
		m := New(s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		_, _ = m.Token(web(), projection(600))
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("it ended before its request")
		}
		close(s.hold)
		<-done
		if log.Len() > 0 {
			t.Errorf("it told %s", log.String())
		}
	})
}
