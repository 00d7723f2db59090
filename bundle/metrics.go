package bundle

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	restarts prometheus.Counter
	up       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podd_runtime_restarts_total",
			Help: "How often the bundled container runtime exited and was restarted.",
		}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podd_runtime_up",
			Help: "1 while the bundled container runtime runs and has reported that it is ready.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.restarts, m.up)
	}
	return m
}
