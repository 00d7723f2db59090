package usage

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// part is one part of a pod's disk usage. Each has its own schedule, so that a large one
// does not delay the others.
type part struct {
	what string // for the log; unique in the pod
	// volume and container say what it belongs to; both empty for the pod itself.
	volume, container string
	layer             *layer // if it is one
	used              func(ctx context.Context, enough int64) (Amount, error)

	bytes   int64     // at the last measurement
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
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; ephemeral(v) {
			w.add(m.volumePart(p, v), first)
		}
	}
	hosts := &part{what: "the hosts file", used: func(context.Context, int64) (Amount, error) {
		return m.hosts(p.UID)
	}}
	if w.add(hosts, first) { // if a container has a limit, the pod has one, too
		w.followed = first
	}
	return w
}

// add has a part measured from then on, if it counts towards a limit.
func (w *watch) add(p *part, from time.Time) bool {
	p.next = from
	counts := slices.ContainsFunc(w.bounds, func(b bound) bool { return b.counts(p) })
	if counts {
		w.parts = append(w.parts, p)
	}
	return counts
}

func (m *Meter) volumePart(p *v1.Pod, v *v1.Volume) *part {
	return &part{what: fmt.Sprintf("volume %q", v.Name), volume: v.Name, used: func(ctx context.Context, enough int64) (Amount, error) {
		dir, err := m.cfg.Path(p, v.Name)
		if err != nil {
			return Amount{}, err
		}
		return m.directory(ctx, p, v, dir, enough)
	}}
}

func (m *Meter) logPart(p *v1.Pod, container string) *part {
	dir := filepath.Join(m.cfg.Dirs.Logs(p.Namespace, p.Name, p.UID), container)
	return &part{what: fmt.Sprintf("the logs of container %q", container), container: container,
		used: func(ctx context.Context, enough int64) (Amount, error) { return m.walk(ctx, dir, enough) }}
}

func (m *Meter) layerPart(container, id string) *part {
	l := &layer{meter: m, id: id}
	return &part{what: fmt.Sprintf("the writable layer of container %q (%s)", container, id), container: container, layer: l, used: l.used}
}

// follow replaces the containers' parts with those of the containers that run now.
func (w *watch) follow() {
	now := time.Now()
	w.followed = now.Add(period)
	var current []*part
	for _, c := range running(w.meter.cfg.Status(w.pod.UID)) {
		current = append(current, w.meter.logPart(w.pod, c.Name), w.meter.layerPart(c.Name, containerID(c)))
	}
	known := func(in []*part, p *part) bool {
		return slices.ContainsFunc(in, func(other *part) bool { return other.what == p.what })
	}
	w.parts = slices.DeleteFunc(w.parts, func(p *part) bool { return p.container != "" && !known(current, p) })
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
	switch {
	case err == nil:
		p.bytes, p.lastErr = used.Bytes, ""
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

func (w *watch) exceeded() *bound {
	for i := range w.bounds {
		if b := &w.bounds[i]; w.sum(b) > b.bytes {
			return b
		}
	}
	return nil
}
