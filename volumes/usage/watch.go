package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// watchedContent is a content that a Watch measures. Each has its own schedule, so that a large one
// does not delay the others.
type watchedContent struct {
	content
	persistent bool // whether or not its container runs

	bytes      int64     // at the last measurement
	incomplete bool      // there is more, which cannot be counted
	measureAt  time.Time // of the next measurement
	lastErr    string
}

// watch is the state of a Watch.
type watch struct {
	meter    *Meter
	pod      *v1.Pod
	limits   []storageLimit
	contents []*watchedContent
	// refreshAt is when the containers are listed next; zero if none of them counts.
	refreshAt time.Time
}

func newWatch(m *Meter, p *v1.Pod) *watch {
	w := &watch{meter: m, pod: p, limits: limitsOf(p)}
	first := time.Now().Add(measurePeriod)
	for _, c := range m.persistentContents(p) {
		w.add(&watchedContent{content: c, persistent: true}, first)
	}
	if slices.ContainsFunc(w.limits, func(b storageLimit) bool { return b.includesContainers }) {
		w.refreshAt = first
	}
	return w
}

// add starts measuring a content from then on, if it counts towards a limit.
func (w *watch) add(c *watchedContent, from time.Time) bool {
	c.measureAt = from
	counts := slices.ContainsFunc(w.limits, func(b storageLimit) bool { return b.appliesTo(c) })
	if counts {
		w.contents = append(w.contents, c)
	}
	return counts
}

// refreshContainers replaces the contents of containers with those of the containers
// that run now.
func (w *watch) refreshContainers() {
	now := time.Now()
	w.refreshAt = now.Add(measurePeriod)
	var current []*watchedContent
	for _, c := range runningContainers(w.meter.cfg.Status(w.pod.UID)) {
		for _, found := range w.meter.containerContents(w.pod, c) {
			current = append(current, &watchedContent{content: found})
		}
	}
	known := func(in []*watchedContent, c *watchedContent) bool {
		return slices.ContainsFunc(in, func(other *watchedContent) bool { return other.label == c.label })
	}
	w.contents = slices.DeleteFunc(w.contents, func(c *watchedContent) bool { return !c.persistent && !known(current, c) })
	for _, c := range current {
		if !known(w.contents, c) {
			w.add(c, now)
		}
	}
}

// next returns the content that is measured next, and when; nil means refreshContainers.
func (w *watch) next() (due *watchedContent, at time.Time) {
	at = w.refreshAt
	for _, c := range w.contents {
		if at.IsZero() || c.measureAt.Before(at) {
			due, at = c, c.measureAt
		}
	}
	return due, at
}

// measure measures a content. If that fails, the last measurement stays.
func (w *watch) measure(ctx context.Context, c *watchedContent) {
	var used Amount
	enough := w.headroom(c)
	took, err := w.meter.withSlot(ctx, func() (err error) {
		used, err = c.measure(ctx, enough)
		return err
	})
	switch incomplete := errors.Is(err, errIncomplete); {
	case err == nil, incomplete:
		c.bytes, c.incomplete, c.lastErr = used.Bytes, incomplete, ""
	case ctx.Err() == nil && err.Error() != c.lastErr:
		c.lastErr = err.Error()
		w.meter.cfg.Log.Warn("cannot measure storage of a pod: its limit is not enforced until that succeeds",
			"pod", w.pod.Namespace+"/"+w.pod.Name, "uid", w.pod.UID, "what", c.label, "error", err)
	}
	c.measureAt = time.Now().Add(max(measurePeriod, pauseFactor*took))
}

// headroom returns how many bytes a content may use before a limit is exceeded.
func (w *watch) headroom(c *watchedContent) int64 {
	least := int64(-1)
	for i := range w.limits {
		b := &w.limits[i]
		if !b.appliesTo(c) {
			continue
		}
		if left := max(0, b.bytes-w.sum(b)+c.bytes); least < 0 || left < least {
			least = left
		}
	}
	return least
}

func (w *watch) sum(b *storageLimit) (bytes int64) {
	for _, c := range w.contents {
		if b.appliesTo(c) {
			bytes += c.bytes
		}
	}
	return bytes
}

// exceeded returns a limit that the pod exceeds. An incomplete count exceeds any limit: otherwise
// what cannot be counted would be free.
func (w *watch) exceeded() *storageLimit {
	for i := range w.limits {
		b := &w.limits[i]
		if w.sum(b) > b.bytes {
			return b
		}
		for _, c := range w.contents {
			if c.incomplete && b.appliesTo(c) {
				uncounted := *b
				uncounted.message += fmt.Sprintf("The %s cannot be counted: more than %d directories are nested deeper than %d. ", c.label, maxDeferred, maxDepth)
				return &uncounted
			}
		}
	}
	return nil
}
