package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
)

// podCounts counts the agent's pods at each scrape, under the kubelet's names.
type podCounts struct{ agent *Agent }

var (
	activePods = prometheus.NewDesc("kubelet_active_pods",
		"Pods that count when the node admits another one. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	workingPods = prometheus.NewDesc("kubelet_working_pods",
		"Pods with a worker, by its stage (sync, terminating, terminated), by whether their source still has them (desired, orphan; runtime_only for those that only the runtime knows), and by whether they are static.",
		[]string{"lifecycle", "config", "static"}, nil)
	managedEphemeralContainers = prometheus.NewDesc("kubelet_managed_ephemeral_containers",
		"Ephemeral containers of the pods on this node.", nil, nil)
)

// Describe implements prometheus.Collector.
func (podCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- activePods
	ch <- workingPods
	ch <- managedEphemeralContainers
}

// Collect implements prometheus.Collector. It takes the workers' locks, one at a time, and calls
// nothing.
func (c podCounts) Collect(ch chan<- prometheus.Metric) {
	active := map[string]int{static(true): 0, static(false): 0}
	working := make(map[workingLabels]int)
	ephemeral := 0
	for _, w := range c.agent.everyWorker() {
		labels, d, counts := w.labels()
		working[labels]++
		if counts {
			active[static(d.Source != pod.SourceAPIServer)]++
		}
		if labels.config == configDesired {
			ephemeral += len(d.Pod.Spec.EphemeralContainers)
		}
	}
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	for label, n := range active {
		gauge(activePods, n, label)
	}
	for _, lifecycle := range []string{lifecycleSync, lifecycleTerminating, lifecycleTerminated} {
		for _, l := range []workingLabels{
			{lifecycle, configDesired, static(true)}, {lifecycle, configDesired, static(false)},
			{lifecycle, configOrphan, static(true)}, {lifecycle, configOrphan, static(false)},
			{lifecycle, configRuntimeOnly, staticUnknown},
		} {
			gauge(workingPods, working[l], l.lifecycle, l.config, l.static)
		}
	}
	gauge(managedEphemeralContainers, ephemeral)
}

// everyWorker returns the current workers.
func (a *Agent) everyWorker() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		list = append(list, w)
	}
	return list
}

// workingLabels are the labels of kubelet_working_pods, with the kubelet's values.
type workingLabels struct{ lifecycle, config, static string }

const (
	lifecycleSync        = "sync"
	lifecycleTerminating = "terminating"
	lifecycleTerminated  = "terminated"

	configDesired     = "desired"
	configOrphan      = "orphan"
	configRuntimeOnly = "runtime_only"

	staticUnknown = "unknown"
)

// static returns the kubelet's value of the label static: "true" for pods that do not come
// from an apiserver, and "" for the others.
func static(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// labels returns the labels of a worker, its pod, and whether the pod uses resources of the
// node.
func (w *worker) labels() (l workingLabels, d *pod.Desired, counts bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d = w.mail.desired
	switch {
	case w.reached >= pod.PhaseTerminated || w.finished:
		l.lifecycle = lifecycleTerminated
	case w.mail.Kill != nil || w.mail.End != nil:
		l.lifecycle = lifecycleTerminating
	default:
		l.lifecycle = lifecycleSync
	}
	known := len(d.Pod.Spec.Containers) > 0
	l.config, l.static = configDesired, static(d.Source != pod.SourceAPIServer)
	switch {
	case w.orphan && !known:
		l.config, l.static = configRuntimeOnly, staticUnknown
	case w.orphan:
		l.config = configOrphan
	}
	return l, d, known && !w.finished
}

// countDesired updates kubelet_desired_pods.
func (a *Agent) countDesired() {
	fixed := 0
	for _, d := range a.desired {
		if d.Source != pod.SourceAPIServer {
			fixed++
		}
	}
	a.metrics.desired.WithLabelValues(static(true)).Set(float64(fixed))
	// A pod that is being deleted counts until its source no longer lists it.
	a.metrics.desired.WithLabelValues(static(false)).Set(float64(len(a.desired) - fixed + len(a.deleted)))
}

// preempt terminates the pods that must make room for a critical pod.
func (a *Agent) preempt(verdict pod.Verdict) {
	for _, victim := range verdict.Preempt {
		a.mu.Lock()
		w := a.workers[victim]
		a.mu.Unlock()
		if w == nil {
			continue
		}
		if decided, _ := w.applyEnd(preemptionEnd()); decided {
			a.metrics.preemptions.WithLabelValues(verdict.PreemptFor).Inc()
		}
	}
}
