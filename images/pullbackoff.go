package images

import (
	"time"

	"golang.org/x/time/rate"

	"podd/internal/pod"
	"podd/internal/wake"
)

// The kubelet's constants (pkg/kubelet/kubelet.go: imageBackOffPeriod,
// MaxImageBackOff; client-go forgets an entry after twice the maximum).
const (
	backoffFirst  = 10 * time.Second
	backoffMax    = 300 * time.Second
	backoffForget = 2 * backoffMax
)

// backoffKey identifies a back-off: a pull that fails for one pod does not delay
// another.
type backoffKey struct {
	uid   pod.UID
	image string
}

// backoff is the delay before a pod pulls an image again.
type backoff struct {
	delay time.Duration
	since time.Time
	// cause and message of the last failure; the message is prefixed with its
	// reason.
	cause   cause
	message string
}

// next returns the back-off after one more failure. A failure with another cause
// starts anew (say, the registry is back and now requires credentials); a
// registry's Retry-After takes precedence if it is longer.
func (b backoff) next(now time.Time, why cause, hint time.Duration, message string) backoff {
	if b.cause != why || now.Sub(b.since) >= backoffForget {
		b.delay = 0
	}
	delay := wake.Backoff{Initial: backoffFirst, Max: backoffMax}.Next(b.delay)
	return backoff{delay: max(delay, hint), since: now, cause: why, message: message}
}

func (b backoff) until() time.Time { return b.since.Add(b.delay) }

// newRate allows burst pulls at once, then qps a second; any number if qps is 0.
func newRate(qps float64, burst int) *rate.Limiter {
	if qps <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(qps), max(burst, 1))
}

// takeToken takes a token, or returns the time until there is one.
func takeToken(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
