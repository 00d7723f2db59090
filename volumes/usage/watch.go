package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// part is a content that a Watch measures. Each has its own schedule, so that a large one
// does not delay the others.
type part struct {
	content
	lasts bool // whether or not its container runs

	bytes   int64     // at the last measurement
	cut     bool      // there is more, which cannot be counted
	next    time.Time // of the next measurement
	lastErr string
}

// watch is the state of a Watch.
type watch struct {
	meter  *Meter
	pod    *v1.Pod
	bounds []bound
	parts  []*part
	// followed is when the containers are listed next; zero if none of them counts.
	followed time.Time
}

func newWatch(m *Meter, p *v1.Pod) *watch {
	w := &watch{meter: m, pod: p, bounds: boundsOf(p)}
	first := time.Now().Add(period)
	for _, c := range m.lasting(p) {
		w.add(&part{content: c, lasts: true}, first)
	}
	if slices.ContainsFunc(w.bounds, func(b bound) bool { return b.containers }) {
		w.followed = first
	}
	return w
}

// add starts measuring a part from then on, if the part counts towards a limit.
func (w *watch) add(p *part, from time.Time) bool {
	p.next = from
	counts := slices.ContainsFunc(w.bounds, func(b bound) bool { return b.counts(p) })
	if counts {
		w.parts = append(w.parts, p)
	}
	return counts
}

// follow replaces the containers' parts with those of the containers that run now.
func (w *watch) follow() {
	now := time.Now()
	w.followed = now.Add(period)
	var current []*part
	for _, c := range running(w.meter.cfg.Status(w.pod.UID)) {
		for _, found := range w.meter.ofRunning(w.pod, c) {
			current = append(current, &part{content: found})
		}
	}
	known := func(in []*part, p *part) bool {
		return slices.ContainsFunc(in, func(other *part) bool { return other.what == p.what })
	}
	w.parts = slices.DeleteFunc(w.parts, func(p *part) bool { return !p.lasts && !known(current, p) })
	for _, p := range current {
		if !known(w.parts, p) {
			w.add(p, now)
		}
	}
}

// next returns the part that is measured next, and when; nil means follow.
func (w *watch) next() (due *part, at time.Time) {
	at = w.followed
	for _, p := range w.parts {
		if at.IsZero() || p.next.Before(at) {
			due, at = p, p.next
		}
	}
	return due, at
}

// measure measures a part. If that fails, the last measurement stays.
func (w *watch) measure(ctx context.Context, p *part) {
	var used Amount
	enough := w.enough(p)
	took, err := w.meter.withSlot(ctx, func() (err error) {
		used, err = p.used(ctx, enough)
		return err
	})
	switch cut := errors.Is(err, errCut); {
	case err == nil, cut:
		p.bytes, p.cut, p.lastErr = used.Bytes, cut, ""
	case ctx.Err() == nil && err.Error() != p.lastErr:
		p.lastErr = err.Error()
		w.meter.cfg.Log.Warn("cannot measure storage of a pod: its limit is not enforced until that succeeds",
			"pod", w.pod.Namespace+"/"+w.pod.Name, "uid", w.pod.UID, "what", p.what, "error", err)
	}
	p.next = time.Now().Add(max(period, share*took))
}

// enough returns how many bytes a part may use before a limit is exceeded.
func (w *watch) enough(p *part) int64 {
	least := int64(-1)
	for i := range w.bounds {
		b := &w.bounds[i]
		if !b.counts(p) {
			continue
		}
		if left := max(0, b.bytes-w.sum(b)+p.bytes); least < 0 || left < least {
			least = left
		}
	}
	return least
}

func (w *watch) sum(b *bound) (bytes int64) {
	for _, p := range w.parts {
		if b.counts(p) {
			bytes += p.bytes
		}
	}
	return bytes
}

// exceeded returns a limit that the pod exceeds. A cut count exceeds any limit: otherwise
// what cannot be counted would be free.
func (w *watch) exceeded() *bound {
	for i := range w.bounds {
		b := &w.bounds[i]
		if w.sum(b) > b.bytes {
			return b
		}
		for _, p := range w.parts {
			if p.cut && b.counts(p) {
				uncounted := *b
				uncounted.message += fmt.Sprintf("The %s cannot be counted: more than %d directories are nested deeper than %d. ", p.what, maxShelved, maxDepth)
				return &uncounted
			}
		}
	}
	return nil
}
