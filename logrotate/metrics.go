package logrotate

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	rotations *prometheus.CounterVec
	pruned    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		rotations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_container_log_rotations_total",
			Help: "Rotations of container logs, by result: ok, error.",
		}, []string{"result"}),
		pruned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podd_container_log_files_removed_total",
			Help: "Rotated container logs that were removed because there were too many.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.rotations, m.pruned)
	}
	return m
}
