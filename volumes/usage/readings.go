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
	// readWait is how long a caller waits for readings in progress.
	readWait = time.Second
	// forgetAfter is how long a reading that nobody requests is kept.
	forgetAfter = 10 * time.Minute
)

// key identifies a reading.
type key struct {
	pod   pod.UID
	label string
}

// source is something that can be measured. read may hang; took is how long it kept the
// disk busy.
type source struct {
	key
	read func(ctx context.Context) (f stats.FsStats, took time.Duration, err error)
}

// reading is the last result of a source. Guarded by Meter.mu.
type reading struct {
	inProgress    chan struct{} // closed at the end of the read in progress; nil for none
	statsExpiry   time.Time     // when the result expires for statistics
	rankingExpiry time.Time     // when it expires for the ranking of pods (eviction)
	lastRequest   time.Time     // the last request
	latest        *stats.FsStats
	lastErr       string
}

// purpose is the use of readings. For statistics, a reading stays valid as long as
// configured, and nobody waits longer than readWait. For a ranking of pods, it stays
// valid for measurePeriod, and the caller waits for all readings, including those in
// progress.
type purpose bool

const (
	forStatistics purpose = false
	forRanking    purpose = true
)

// readAll returns what is known about the sources. It reads those that have expired, and
// waits as long as the purpose demands.
func (m *Meter) readAll(ctx context.Context, all []source, why purpose) map[key]stats.FsStats {
	over := time.NewTimer(readWait)
	defer over.Stop()
	if why == forRanking {
		over.Stop()
	}
wait:
	for _, busy := range m.startReads(ctx, all, why) {
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
	known := make(map[key]stats.FsStats, len(all))
	for _, s := range all {
		if r := m.readings[s.key]; r != nil && r.latest != nil {
			known[s.key] = *r.latest
		}
	}
	return known
}

// startReads starts the reads that are due, except those in progress, and returns channels
// that are closed at their ends. Only for a ranking does it return the channels of reads
// that were already in progress.
func (m *Meter) startReads(ctx context.Context, all []source, why purpose) (begun []chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range all {
		r := m.readings[s.key]
		if r == nil {
			r = &reading{}
			m.readings[s.key] = r
		}
		r.lastRequest = now
		due := r.statsExpiry
		if why == forRanking && r.rankingExpiry.Before(due) {
			due = r.rankingExpiry
		}
		switch {
		case r.inProgress == nil && !now.Before(due):
			r.inProgress = make(chan struct{})
			begun = append(begun, r.inProgress)
			go m.read(context.WithoutCancel(ctx), s, r) // the result is shared with other callers
		case r.inProgress != nil && why == forRanking:
			begun = append(begun, r.inProgress)
		}
	}
	for k, r := range m.readings {
		if r.inProgress == nil && now.Sub(r.lastRequest) > forgetAfter {
			delete(m.readings, k)
		}
	}
	return begun
}

// read reads one source; it hangs if the source does.
func (m *Meter) read(ctx context.Context, s source, r *reading) {
	f, took, err := s.read(ctx)
	f.Time = metav1.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	close(r.inProgress)
	r.inProgress = nil
	r.rankingExpiry = time.Now().Add(max(measurePeriod, pauseFactor*took))
	r.statsExpiry = time.Now().Add(max(m.statsPeriod+rand.N(m.statsPeriod), pauseFactor*took))
	if err == nil {
		r.latest, r.lastErr = &f, ""
		return
	}
	r.latest = nil
	if r.lastErr != err.Error() {
		r.lastErr = err.Error()
		m.cfg.Log.Debug("no statistics of a pod's storage", "uid", s.pod, "what", s.label, "error", err)
	}
}
