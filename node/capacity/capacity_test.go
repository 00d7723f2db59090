package capacity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/cgroup"
	"podd/config"
	"podd/eviction/threshold"
)

func quantities(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func TestWhatPodsMayHave(t *testing.T) {
	kept, mistakes := threshold.Parse(threshold.Settings{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}, EnforcePodAllocatable: true,
		Soft: map[string]string{"memory.available": "5Gi"}, SoftGrace: map[string]string{"memory.available": "1m"},
	})
	if mistakes != nil {
		t.Fatal(mistakes)
	}
	capacity := quantities("cpu", "2", "memory", "10Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi")
	for name, c := range map[string]struct {
		cfg       config.Config
		want      v1.ResourceList
		wantError string
	}{
		"nothing reserved": {config.Config{}, quantities("cpu", "2", "memory", "9Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi"), ""},
		"reserved and kept free": {config.Config{
			Reserved: quantities("cpu", "500m", "memory", "1Gi", "pid", "100"),
			Eviction: config.Eviction{Thresholds: kept},
		}, quantities("cpu", "1500m", "memory", "8092Mi", "ephemeral-storage", "90Gi", "pods", "110", "hugepages-2Mi", "1Gi"), ""},
		"more than there is": {config.Config{Reserved: quantities("cpu", "3")}, nil, "3 of cpu is reserved and the machine has 2"},
	} {
		r := Resources{Capacity: capacity, Memory: 10 << 30}
		err := r.computeAllocatable(&c.cfg)
		if c.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantError) {
				t.Errorf("%s: got %v, want %q", name, err, c.wantError)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for resource, want := range c.want {
			got := r.Allocatable[resource]
			if diff := got.Value() - want.Value(); diff < -1024 || diff > 1024 || resource == v1.ResourceCPU && got.Cmp(want) != 0 { // percentages are 32-bit floats, upstream too
				t.Errorf("%s: %s: got %s, want %s", name, resource, got.String(), want.String())
			}
		}
	}
}

func TestThisMachinesResources(t *testing.T) {
	r, err := Find(&config.Config{RootDir: filepath.Join(t.TempDir(), "not", "yet"), MaxPods: 110, PodsPerCore: 10, EnforcePods: true, Reserved: quantities("cpu", "100m")})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods} {
		if q := r.Allocatable[name]; q.Sign() <= 0 {
			t.Errorf("%s: got %s", name, q.String())
		}
	}
	has, left := r.Capacity[v1.ResourceEphemeralStorage], r.Allocatable[v1.ResourceEphemeralStorage]
	if a, b := resource.MustParse(has.String()), resource.MustParse(left.String()); a.Format != resource.DecimalSI || b.Format != resource.DecimalSI {
		t.Errorf("ephemeral storage: got %s and %s, want both in decimal", has.String(), left.String())
	}
	cpu, pods, bounds := r.Capacity[v1.ResourceCPU], r.Capacity[v1.ResourcePods], r.CgroupLimits[v1.ResourceCPU]
	if pods.Value() != min(110, 10*cpu.Value()) || bounds.MilliValue() != cpu.MilliValue()-100 {
		t.Errorf("got %s processors, %s pods, all of them bounded to %s", cpu.String(), pods.String(), bounds.String())
	}
	if pids := r.CgroupLimits[cgroup.ResourcePIDs]; pids.Value() < 1000 || r.Kernel == "" {
		t.Errorf("got %s processes, kernel %q", pids.String(), r.Kernel)
	}
}

func TestKernelsNumbers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"pid_max": "4194304\n", "threads-max": "1000\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := maxPIDs(dir); got != 1000 {
		t.Errorf("processes: got %d, want 1000", got)
	}
	if got := maxPIDs(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("a kernel without the limit: got %d", got)
	}
}
