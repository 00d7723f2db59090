package usage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestHowLongMeasuringTakesIsUpstreamsMetric: its name, help and buckets, by what measured;
// without what was waited for, and no more often than something is measured.
func TestHowLongMeasuringTakesIsUpstreamsMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device := blockDevice(t)
		d := newDisk()
		d.takes["walked"] = 2 * time.Second
		d.run("web-1")
		d.drivers["driver/1"] = func(context.Context) (pod.VolumeStats, error) {
			time.Sleep(300 * time.Millisecond)
			return ofADriver, nil
		}
		d.drivers["driver/2"] = func(context.Context) (pod.VolumeStats, error) {
			time.Sleep(time.Minute)
			return pod.VolumeStats{}, errors.New("it does not answer")
		}
		m := d.stated(func(path string) error {
			if path == "mine" {
				time.Sleep(40 * time.Millisecond)
			}
			return nil
		})
		m.cfg.QuotaUsage = func(dir string) (int64, int64, bool) { return 4096, 7, dir == "counted" }
		no := false
		p := aPod(empty("counted", "", ""), empty("walked", "", ""), claimed("driver/1", "1"), claimed("driver/2", "2"), claimed("mine", "mine"), claimed(device, "raw"))
		p.Spec.HostUsers, p.Status = &no, d.pod.Status
		reg := prometheus.NewRegistry()
		reg.MustRegister(m.Collector(func() []*v1.Pod { return nil }))
		for range 10 {
			m.Pods(t.Context(), []*v1.Pod{p})
		}
		time.Sleep(time.Minute)
		want := "# HELP kubelet_volume_metric_collection_duration_seconds Duration in seconds to calculate volume stats\n" +
			"# TYPE kubelet_volume_metric_collection_duration_seconds histogram\n"
		for source, took := range map[string][]float64{"du": {0, 0, 2}, "fsquota": {0}, "driver": {.3, 60}, "statfs": {.04}, "block": {0}} {
			want += histogram("kubelet_volume_metric_collection_duration_seconds", fmt.Sprintf("metric_source=%q", source), took)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_volume_metric_collection_duration_seconds"); err != nil {
			t.Error(err)
		}
	})
}

// histogram is one with upstream's buckets, as text.
func histogram(name, label string, values []float64) string {
	var text strings.Builder
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	for _, le := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"} {
		most, _ := strconv.ParseFloat(le, 64)
		n := 0
		for _, v := range values {
			if v <= most {
				n++
			}
		}
		fmt.Fprintf(&text, "%s_bucket{%s,le=%q} %d\n", name, label, le, n)
	}
	fmt.Fprintf(&text, "%s_sum{%s} %v\n%s_count{%s} %d\n", name, label, sum, name, label, len(values))
	return text.String()
}

// blockDevice is the node of a device that does not exist.
func blockDevice(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 0))); err != nil {
		t.Skipf("device nodes need root: %v", err)
	}
	return path
}
