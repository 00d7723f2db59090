package prober

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// rowsOf is each row of a registry: name{label="value",…} in the labels' order.
func rowsOf(t *testing.T, r *prometheus.Registry) (rows []string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if f.GetType() == dto.MetricType_HISTOGRAM {
				labels = append(labels, "le_first="+slices.Concat(m.Histogram.Bucket)[0].String())
			}
			rows = append(rows, f.GetName()+" "+strings.Join(labels, " "))
		}
	}
	return rows
}

func TestMetricsHaveUpstreamsLabelsAndGoWithTheirPod(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(_ context.Context, j job) attemptResult {
			if j.kind == liveness {
				return attemptResult{verdict: failure}
			}
			return attemptResult{verdict: success}
		})
		b.sync(aPod("a", nil, every(1), every(1)), "a1")
		b.sync(aPod("b", nil, every(1), nil), "b1")
		b.at(2 * sec)
		got := rowsOf(t, b.rows)
		want := []string{
			"prober_probe_duration_seconds container=web namespace=default pod=a probe_type=Readiness",
			"prober_probe_duration_seconds container=web namespace=default pod=b probe_type=Readiness",
			"prober_probe_total container=web namespace=default pod=a pod_uid=a probe_type=Liveness result=failed",
			"prober_probe_total container=web namespace=default pod=a pod_uid=a probe_type=Readiness result=successful",
			"prober_probe_total container=web namespace=default pod=b pod_uid=b probe_type=Readiness result=successful",
		}
		for i := range want {
			if len(got) != len(want) || !strings.HasPrefix(got[i], want[i]) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		b.Forget("a")
		if got := rowsOf(t, b.rows); len(got) != 2 || strings.Contains(strings.Join(got, " "), "pod=a ") {
			t.Errorf("after pod a went: got %v, want the two rows of b", got)
		}
		// The next generation of b has its name; the old one's end leaves its times.
		next := aPod("b2", nil, every(1), nil)
		next.Name = "b"
		b.sync(next, "b2")
		b.Forget("b")
		if got := rowsOf(t, b.rows); len(got) != 2 || !strings.Contains(got[1], "pod_uid=b2") {
			t.Errorf("got %v, want the two rows of the new b", got)
		}
		b.Forget("b2")
		b.Forget("nobody")
		if got := rowsOf(t, b.rows); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
	})
}

// TestManyExecProbesAreWarnedOf once, and once that they are fewer
// (kubernetes/kubernetes#82440).
func TestManyExecProbesAreWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		own := prometheus.NewRegistry()
		p := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: own})
		exec := with(every(1), func(p *v1.Probe) { p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{}} })
		pods := 4 * runtime.NumCPU()
		for i := range pods {
			spec := aPod(pod.UID(string(rune('A'+i))), nil, exec, nil)
			p.Sync(spec, "", []pod.ProbeTarget{{Container: &spec.Spec.Containers[0], ContainerID: "c"}}, false)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), "more than a tenth") {
			t.Errorf("got log\n%s\nwant one warning", log.String())
		}
		families, err := own.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			want := map[string]float64{"podd_exec_probes_per_second": float64(pods), "podd_exec_probes_excessive": 1}[f.GetName()]
			if got := f.Metric[0].Gauge.GetValue(); got != want {
				t.Errorf("%s: got %v, want %v", f.GetName(), got, want)
			}
		}
		for i := range pods {
			p.Forget(pod.UID(string(rune('A' + i))))
		}
		if got := strings.Count(log.String(), "again"); got != 1 {
			t.Errorf("got log\n%s\nwant one line that it is over", log.String())
		}
	})
}
