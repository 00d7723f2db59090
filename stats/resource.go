package stats

import (
	"context"
	"io"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/stats/kernel"
)

// Resource writes /metrics/resource: the kubelet's names, labels and timestamps
// (KEP-727). If nothing can be read it writes resource_scrape_error alone, as upstream.
func (c *Collector) Resource(ctx context.Context, w io.Writer) error {
	snap, err := c.snapshot(ctx, kernel.Usage)
	if err != nil {
		return err
	}
	out := newMetricsWriter(w)
	s := c.usageSummary(snap)
	writeNode(out, &s.Node)
	writeContainers(out, s.Pods)
	writePods(out, s.Pods)
	failed := 0.0
	if snap.Err != nil {
		failed = 1
	}
	for _, name := range []string{"scrape_error", "resource_scrape_error"} {
		out.family(name, gauge, "1 if there was an error while getting container metrics, 0 otherwise")
		out.series(name, failed, time.Time{})
	}
	return out.flush()
}

func writeNode(out *metricsWriter, n *api.NodeStats) {
	if n.CPU != nil {
		out.family("node_cpu_usage_seconds_total", counter, "Cumulative cpu time consumed by the node in core-seconds")
		out.series("node_cpu_usage_seconds_total", seconds(*n.CPU.UsageCoreNanoSeconds), n.CPU.Time.Time)
	}
	if n.Memory != nil {
		out.family("node_memory_working_set_bytes", gauge, "Current working set of the node in bytes")
		out.series("node_memory_working_set_bytes", float64(*n.Memory.WorkingSetBytes), n.Memory.Time.Time)
	}
	if n.Swap != nil {
		out.family("node_swap_usage_bytes", gauge, "Current swap usage of the node in bytes. Reported only on non-windows systems")
		out.series("node_swap_usage_bytes", float64(*n.Swap.SwapUsageBytes), n.Swap.Time.Time)
	}
}

// resourceFamily is a family of containers or pods: value returns false if it has no value.
type resourceFamily[T any] struct {
	name, kind, help string
	value            func(*T) (value float64, at time.Time, ok bool)
}

func cpuSeconds(s *api.CPUStats) (float64, time.Time, bool) {
	if s == nil {
		return 0, time.Time{}, false
	}
	return seconds(*s.UsageCoreNanoSeconds), s.Time.Time, true
}

func workingSet(s *api.MemoryStats) (float64, time.Time, bool) {
	if s == nil {
		return 0, time.Time{}, false
	}
	return float64(*s.WorkingSetBytes), s.Time.Time, true
}

func swapUsage(s *api.SwapStats) (float64, time.Time, bool) {
	if s == nil {
		return 0, time.Time{}, false
	}
	return float64(*s.SwapUsageBytes), s.Time.Time, true
}

func swapLimit(s *api.SwapStats) (float64, time.Time, bool) {
	if s == nil || s.SwapAvailableBytes == nil {
		return 0, time.Time{}, false
	}
	return float64(*s.SwapAvailableBytes + *s.SwapUsageBytes), s.Time.Time, true
}

var containerFamilies = []resourceFamily[api.ContainerStats]{
	{"container_start_time_seconds", gauge, "Start time of the container since unix epoch in seconds", func(s *api.ContainerStats) (float64, time.Time, bool) {
		return seconds(uint64(s.StartTime.UnixNano())), time.Time{}, !s.StartTime.IsZero()
	}},
	{"container_cpu_usage_seconds_total", counter, "Cumulative cpu time consumed by the container in core-seconds", func(s *api.ContainerStats) (float64, time.Time, bool) { return cpuSeconds(s.CPU) }},
	{"container_memory_working_set_bytes", gauge, "Current working set of the container in bytes", func(s *api.ContainerStats) (float64, time.Time, bool) { return workingSet(s.Memory) }},
	{"container_swap_usage_bytes", gauge, "Current amount of the container swap usage in bytes. Reported only on non-windows systems", func(s *api.ContainerStats) (float64, time.Time, bool) { return swapUsage(s.Swap) }},
	{"container_swap_limit_bytes", gauge, "Current amount of the container swap limit in bytes. Reported only on non-windows systems", func(s *api.ContainerStats) (float64, time.Time, bool) { return swapLimit(s.Swap) }},
}

var podFamilies = []resourceFamily[api.PodStats]{
	{"pod_cpu_usage_seconds_total", counter, "Cumulative cpu time consumed by the pod in core-seconds", func(s *api.PodStats) (float64, time.Time, bool) { return cpuSeconds(s.CPU) }},
	{"pod_memory_working_set_bytes", gauge, "Current working set of the pod in bytes", func(s *api.PodStats) (float64, time.Time, bool) { return workingSet(s.Memory) }},
	{"pod_swap_usage_bytes", gauge, "Current amount of the pod swap usage in bytes. Reported only on non-windows systems", func(s *api.PodStats) (float64, time.Time, bool) { return swapUsage(s.Swap) }},
}

func writeContainers(out *metricsWriter, pods []api.PodStats) {
	for _, f := range containerFamilies {
		out.family(f.name, f.kind, f.help)
		for i := range pods {
			p := &pods[i]
			for j := range p.Containers {
				if v, at, ok := f.value(&p.Containers[j]); ok {
					out.series(f.name, v, at, label("container", p.Containers[j].Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name))
				}
			}
		}
	}
}

func writePods(out *metricsWriter, pods []api.PodStats) {
	for _, f := range podFamilies {
		out.family(f.name, f.kind, f.help)
		for i := range pods {
			if v, at, ok := f.value(&pods[i]); ok {
				out.series(f.name, v, at, label("namespace", pods[i].PodRef.Namespace, "pod", pods[i].PodRef.Name))
			}
		}
	}
}
