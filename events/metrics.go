package events

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// maxReasons bounds the label values of the counter. Reasons come from the code and are
// few; the bound protects against one that is made from data some day.
const maxReasons = 100

// Why an event is not there (any more).
const (
	discardedSpam = "spam"
	discardedOld  = "old"
)

type metrics struct {
	events    *prometheus.CounterVec
	discarded *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]bool
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_events_total",
			Help: "Events of pods, repeats included, by type and reason.",
		}, []string{"type", "reason"}),
		discarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_events_discarded_total",
			Help: "Events that were not kept, since there were too many new ones about one thing (spam), or that made room for newer ones (old).",
		}, []string{"why"}),
		known: map[string]bool{},
	}
	if reg != nil {
		reg.MustRegister(m.events, m.discarded)
	}
	for _, why := range []string{discardedSpam, discardedOld} {
		m.discarded.WithLabelValues(why)
	}
	return m
}

func (m *metrics) count(eventType, reason string) {
	if eventType != v1.EventTypeWarning {
		eventType = v1.EventTypeNormal
	}
	m.mu.Lock()
	if !m.known[reason] {
		if len(m.known) < maxReasons {
			m.known[reason] = true
		} else {
			reason = "other"
		}
	}
	m.mu.Unlock()
	m.events.WithLabelValues(eventType, reason).Inc()
}
