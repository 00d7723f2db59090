package usage

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

const (
	// moment is how long one who asks waits for readings under way.
	moment = time.Second
	// forgotten is when a reading goes that nobody asks for any more.
	forgotten = 10 * time.Minute
)

// key is what a reading is of: something of a pod.
type key struct {
	pod  pod.UID
	what string
}

// source is something that can be read. read may hang; took is the time in which it
// kept the disk busy.
type source struct {
	key
	read func(ctx context.Context) (f figures, took time.Duration, err error)
}

// figures are what was read: how much there is, and how well a volume is whose driver
// knows.
type figures struct {
	stats.FsStats
	health *stats.VolumeHealthStats
}

// reading is the last outcome of a source. Guarded by Meter.mu.
type reading struct {
	busy  chan struct{} // closed at the end of the read under way; nil for none
	until time.Time     // the outcome serves until then
	asked time.Time     // by somebody, at last
	known *figures
	said  string // the last error
}

// readAll returns what is known of the sources, having read what is not fresh. It
// waits a moment at most.
func (m *Meter) readAll(ctx context.Context, all []source) map[key]figures {
	over := time.NewTimer(moment)
	defer over.Stop()
wait:
	for _, busy := range m.beginAll(ctx, all) {
		select {
		case <-busy:
		case <-over.C:
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := make(map[key]figures, len(all))
	for _, s := range all {
		if r := m.readings[s.key]; r != nil && r.known != nil {
			known[s.key] = *r.known
		}
	}
	return known
}

// beginAll begins the reads that are due, but for those under way, and returns what
// tells of their ends. One that hung before is not waited for.
func (m *Meter) beginAll(ctx context.Context, all []source) (begun []chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range all {
		r := m.readings[s.key]
		if r == nil {
			r = &reading{}
			m.readings[s.key] = r
		}
		r.asked = now
		if r.busy == nil && !now.Before(r.until) {
			r.busy = make(chan struct{})
			begun = append(begun, r.busy)
			go m.read(context.WithoutCancel(ctx), s, r) // its outcome serves whoever asks
		}
	}
	for k, r := range m.readings {
		if r.busy == nil && now.Sub(r.asked) > forgotten {
			delete(m.readings, k)
		}
	}
	return begun
}

// read reads one source, and hangs with it.
func (m *Meter) read(ctx context.Context, s source, r *reading) {
	f, took, err := s.read(ctx)
	f.Time = metav1.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	close(r.busy)
	r.busy = nil
	r.until = time.Now().Add(max(m.fresh+rand.N(m.fresh), share*took))
	if err == nil {
		r.known, r.said = &f, ""
		return
	}
	r.known = nil
	if r.said != err.Error() {
		r.said = err.Error()
		m.cfg.Log.Debug("no statistics of a pod's storage", "uid", s.pod, "what", s.what, "error", err)
	}
}
