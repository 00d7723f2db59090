package usage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// volumeGauges are upstream's metrics of volumes with a claim.
var volumeGauges = []struct {
	desc  *prometheus.Desc
	value func(stats.FsStats) *uint64
}{
	{gauge("capacity_bytes", "Capacity in bytes of the volume"), func(s stats.FsStats) *uint64 { return s.CapacityBytes }},
	{gauge("available_bytes", "Number of available bytes in the volume"), func(s stats.FsStats) *uint64 { return s.AvailableBytes }},
	{gauge("used_bytes", "Number of used bytes in the volume"), func(s stats.FsStats) *uint64 { return s.UsedBytes }},
	{gauge("inodes", "Maximum number of inodes in the volume"), func(s stats.FsStats) *uint64 { return s.Inodes }},
	{gauge("inodes_free", "Number of free inodes in the volume"), func(s stats.FsStats) *uint64 { return s.InodesFree }},
	{gauge("inodes_used", "Number of used inodes in the volume"), func(s stats.FsStats) *uint64 { return s.InodesUsed }},
}

func gauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// measurementsTotal counts how often directories of volumes were measured.
var measurementsTotal = prometheus.NewDesc("podd_volume_looks_total",
	"Measurements of volumes that are directories of their pod, by method: walked, or counted by the file system (project quotas).", []string{"method"}, nil)

// newDurations is upstream's histogram (VolumeStatCalDuration), labelled by the source of
// the measurement: a CSI driver's name, or du, fsquota, statfs or block.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_volume_metric_collection_duration_seconds", Help: "Duration in seconds to calculate volume stats", Buckets: prometheus.DefBuckets,
	}, []string{"metric_source"})
}

// observeDuration records how long a measurement that began then has taken, whether it succeeded
// or not. The time spent waiting for a slot does not count.
func (m *Meter) observeDuration(source string, began time.Time) {
	m.durations.WithLabelValues(source).Observe(time.Since(began).Seconds())
}

type collector struct {
	meter *Meter
	pods  func() []*v1.Pod
}

// Collector returns a collector of kubelet_volume_stats_*, the statistics of the pods'
// volumes with a claim, and of how volumes were measured and how long that took. A scrape
// measures as Claims does.
func (m *Meter) Collector(pods func() []*v1.Pod) prometheus.Collector { return &collector{m, pods} }

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- measurementsTotal
	for _, g := range volumeGauges {
		out <- g.desc
	}
	c.meter.durations.Describe(out)
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(measurementsTotal, prometheus.CounterValue, float64(c.meter.measured.walked.Load()), "walked")
	out <- prometheus.MustNewConstMetric(measurementsTotal, prometheus.CounterValue, float64(c.meter.measured.counted.Load()), "counted")
	claims := c.meter.Claims(context.Background(), c.pods())
	c.meter.durations.Collect(out) // including the measurements of this scrape
	for _, v := range claims {
		send := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, v.PVCRef.Namespace, v.PVCRef.Name)
		}
		for _, g := range volumeGauges {
			if n := g.value(v.FsStats); n != nil {
				send(g.desc, float64(*n))
			}
		}
	}
}
