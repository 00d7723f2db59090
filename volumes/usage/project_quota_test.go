package usage

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
)

// Other pods could take their files out of the project. The message of the eviction is
// the same.
func TestProjectQuotasAreUsedOnlyForPodsInUserNamespaces(t *testing.T) {
	const mib = 1 << 20
	yes, no := true, false
	for name, tc := range map[string]struct {
		hostUsers *bool
		counts    bool // the directory has a project
		exceeds   bool
		walks     int
	}{
		"the host's users": {&yes, true, false, 5},
		"by default":       {nil, true, false, 5},
		"its own":          {&no, true, true, 0},
		"without quotas":   {&no, false, false, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk() // a walk finds nothing
				m := d.limits(&bytes.Buffer{})
				m.cfg.QuotaUsage = func(dir string) (int64, int64, bool) {
					if dir != "data" {
						t.Errorf("Counted was called for %s", dir)
					}
					return 11 * mib, 2, tc.counts
				}
				p := aPod(empty("data", "10Mi", ""), empty("memory", "1Mi", v1.StorageMediumMemory))
				p.Spec.HostUsers = tc.hostUsers
				ctx, stop := context.WithTimeout(t.Context(), 55*time.Second)
				defer stop()
				e, exceeded := m.Watch(ctx, p)
				if exceeded != tc.exceeds || exceeded && e.Message != `Usage of EmptyDir volume "data" exceeds the limit "10Mi". ` {
					t.Errorf("got %+v (%v)", e, exceeded)
				}
				if len(d.walks["data"]) != tc.walks {
					t.Errorf("it was walked %d times, want %d", len(d.walks["data"]), tc.walks)
				}
			})
		})
	}
}

// The metrics have how often it was used.
func TestStatisticsUseProjectQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.used = map[string]int64{"walked": 30}
		m := d.stated(fine)
		m.cfg.QuotaUsage = func(dir string) (int64, int64, bool) { return 4096, 7, dir == "counted" }
		p := aPod(empty("counted", "", ""), empty("walked", "", ""))
		no := false
		p.Spec.HostUsers = &no
		s := m.Pods(t.Context(), []*v1.Pod{p})[0]
		if u := used(s); u["counted"] != 4096 || u["walked"] != 30 || *s.VolumeStats[0].InodesUsed != 7 {
			t.Errorf("got %v, %+v", u, s.VolumeStats[0])
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(m.Collector(func() []*v1.Pod { return nil }))
		want := `
# HELP podd_volume_looks_total Measurements of volumes that are directories of their pod, by method: walked, or counted by the file system (project quotas).
# TYPE podd_volume_looks_total counter
podd_volume_looks_total{method="counted"} 1
podd_volume_looks_total{method="walked"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "podd_volume_looks_total"); err != nil {
			t.Error(err)
		}
	})
}
