package nodestatus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// startup measures, once, how long a new node takes from the machine's boot until it is Ready.
// As in the kubelet, all values are 0 for a node that was registered before. It belongs to
// Run.
type startup struct {
	booted, started      time.Time // booted is zero if unknown
	attempted, succeeded time.Time // the first attempt to register, and the registration
	ready                bool

	preAgent, preRegistration, registration, postRegistration, total prometheus.Gauge
}

func newStartup(started time.Time, reg prometheus.Registerer) startup {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_startup_" + name, Help: help})
	}
	return startup{
		booted: bootTime(), started: started,
		preAgent:         gauge("pre_kubelet_duration_seconds", "Seconds from the machine's boot until podd started."),
		preRegistration:  gauge("pre_registration_duration_seconds", "Seconds from the start of podd until it first tried to register the node."),
		registration:     gauge("registration_duration_seconds", "Seconds from the first attempt to register the node until it was registered."),
		postRegistration: gauge("post_registration_duration_seconds", "Seconds from the registration of the node until it was Ready."),
		total:            gauge("duration_seconds", "Seconds from the machine's boot until the node was Ready."),
	}
}

// bootTime returns when the machine booted; zero if unknown.
func bootTime() time.Time {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(info.Uptime) * time.Second)
}

// tries records an attempt to register the node.
func (s *startup) tries() {
	if s.attempted.IsZero() {
		s.attempted = time.Now()
	}
}

// registers records that podd has just created the Node.
func (s *startup) registers() {
	if s.attempted.IsZero() || !s.succeeded.IsZero() {
		return
	}
	s.succeeded = time.Now()
	if !s.booted.IsZero() {
		s.preAgent.Set(s.started.Sub(s.booted).Seconds())
	}
	s.preRegistration.Set(s.attempted.Sub(s.started).Seconds())
	s.registration.Set(s.succeeded.Sub(s.attempted).Seconds())
}

// reports records a status that the apiserver has stored.
func (s *startup) reports(status *v1.NodeStatus) {
	if s.ready || s.succeeded.IsZero() || !isReady(status) {
		return
	}
	s.ready = true
	now := time.Now()
	s.postRegistration.Set(now.Sub(s.succeeded).Seconds())
	if !s.booted.IsZero() {
		s.total.Set(now.Sub(s.booted).Seconds())
	}
}

func isReady(status *v1.NodeStatus) bool {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
