package events

import (
	"hash/fnv"
	"time"

	"golang.org/x/time/rate"
)

// These rules combine many events into few. They are client-go's (tools/record,
// EventCorrelator), and users of kubectl describe know them.
const (
	// combinedPrefix begins the message of an event that stands for many.
	combinedPrefix = "(combined from similar events): "
	// maxSimilar is how many messages of one kind get an event of their own; further ones
	// are combined. similarInterval is the pause after which that is forgotten.
	maxSimilar      = 9
	similarInterval = 10 * time.Minute
	// spamBurst and spamInterval bound new events about one subject, as client-go's
	// EventSourceObjectSpamFilter does. client-go counts repeats too, and all containers
	// of a pod together: there the start of a pod of ten containers loses its last
	// events, and a pod that crashes for an hour the one that says why it is evicted.
	// Repeats cost nothing here.
	spamBurst    = 25
	spamInterval = 5 * time.Minute
	// maxKinds and maxSubjects bound what is remembered for these rules of one
	// pod.
	maxKinds    = 100
	maxSubjects = 200
)

// kind is what makes events similar: their object, type and reason.
type kind struct{ namespace, name, eventType, reason string }

// subject is a pod or one of its containers.
type subject struct{ namespace, name, path string }

// similarEvents is what is known of events of one kind: hashes of the first messages,
// and when the last one came.
type similarEvents struct {
	messages []uint64
	last     time.Time
}

// shouldCombineLocked says whether to combine an event with others of its kind: its message
// is new again, after many new ones.
func (h *history) shouldCombineLocked(k kind, message string, now time.Time) bool {
	s := h.kinds[k]
	if s == nil {
		if len(h.kinds) >= maxKinds {
			evict(h.kinds, func(s *similarEvents) time.Time { return s.last })
		}
		s = &similarEvents{}
		h.kinds[k] = s
	}
	if now.Sub(s.last) > similarInterval {
		s.messages = s.messages[:0]
	}
	s.last = now
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(message)) // a hash takes all
	for _, known := range s.messages {
		if known == sum.Sum64() {
			return false
		}
	}
	if len(s.messages) == maxSimilar {
		return true
	}
	s.messages = append(s.messages, sum.Sum64())
	return false
}

// allowLocked reports whether the subject may have one more new event.
func (h *history) allowLocked(a subject, now time.Time) bool {
	b := h.spamLimits[a]
	if b == nil {
		if len(h.spamLimits) >= maxSubjects {
			evict(h.spamLimits, func(b *spamLimit) time.Time { return b.used })
		}
		b = &spamLimit{Limiter: rate.NewLimiter(rate.Every(spamInterval), spamBurst)}
		h.spamLimits[a] = b
	}
	b.used = now
	return b.AllowN(now, 1)
}

// evict removes what was not used for longest.
func evict[K comparable, V any](m map[K]V, used func(V) time.Time) {
	var oldest K
	var since time.Time
	for k, v := range m {
		if t := used(v); since.IsZero() || t.Before(since) {
			oldest, since = k, t
		}
	}
	delete(m, oldest)
}

// spamLimit bounds the new events about one subject.
type spamLimit struct {
	*rate.Limiter
	used time.Time
}
