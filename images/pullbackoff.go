package images

import (
	"time"

	"podd/internal/pod"
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
	delay := backoffFirst
	if b.delay > 0 && b.cause == why && now.Sub(b.since) < backoffForget {
		delay = min(2*b.delay, backoffMax)
	}
	return backoff{delay: max(delay, hint), since: now, cause: why, message: message}
}

func (b backoff) until() time.Time { return b.since.Add(b.delay) }

// bucket is a token bucket: burst at once, then qps per second. The zero value
// does not limit.
type bucket struct {
	qps    float64
	burst  float64
	tokens float64
	at     time.Time
}

func newBucket(qps float64, burst int) bucket {
	if qps <= 0 {
		return bucket{}
	}
	b := float64(max(burst, 1))
	return bucket{qps: qps, burst: b, tokens: b}
}

// take takes a token, or returns after how long there will be one.
func (b *bucket) take(now time.Time) time.Duration {
	if b.qps == 0 {
		return 0
	}
	if !b.at.IsZero() {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.qps)
	}
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return time.Duration((1-b.tokens)/b.qps*float64(time.Second)) + time.Millisecond
}
