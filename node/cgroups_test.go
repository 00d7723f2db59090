package node

import (
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/cgroup"
	"podd/config"
	"podd/internal/features"
	"podd/internal/pod"
	"podd/node/capacity"
)

// TestMemoryQoSNeedsCgroupV2AndItsGate, and says so where the configuration asks for it.
func TestMemoryQoSNeedsCgroupV2AndItsGate(t *testing.T) {
	off, _ := features.New(map[string]bool{"MemoryQoS": false})
	for name, c := range map[string]struct {
		version cgroup.Version
		gates   features.Set
		on      bool
		warns   bool
	}{
		"v2":      {cgroup.V2, features.Set{}, true, false},
		"v1":      {cgroup.V1, features.Set{}, false, true},
		"hybrid":  {cgroup.Hybrid, features.Set{}, false, true},
		"no gate": {cgroup.V2, off, false, false},
	} {
		var log strings.Builder
		n := &Node{
			cfg: &config.Config{
				Features: c.gates, MemoryTieredReservation: true, MemoryThrottlingFactor: 0.9,
				Reserved: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")},
			},
			cgroupFacts: cgroup.Facts{Version: c.version}, resources: capacity.Resources{Memory: 4 << 20}, log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		want := pod.MemoryQoSRules{}
		if c.on {
			want = pod.MemoryQoSRules{Tiered: true, ThrottlingFactor: 0.9, Allocatable: 3 << 20}
		}
		if got := n.memoryQoS(); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		n.warnUnenforceableLimits()
		if got := strings.Contains(log.String(), "they need cgroup v2"); got != c.warns {
			t.Errorf("%s: got a warning: %v, want %v\n%s", name, got, c.warns, &log)
		}
	}
}
