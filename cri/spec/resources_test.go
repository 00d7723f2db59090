package spec

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

const gi = 1 << 30

func quantities(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func withResources(requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
}

func TestLinuxResources(t *testing.T) {
	o := Options{MemoryCapacity: 16 * gi, AllowNegativeOOMScore: true}.WithDefaults()
	for _, tc := range []struct {
		name                   string
		pod                    *v1.Pod
		shares, quota, mem, oo int64
	}{
		{"nothing", withResources(nil, nil), 2, 0, 0, 1000},
		{"request", withResources(quantities("250m", "4Gi"), nil), 256, 0, 0, 750},
		{"limit only", withResources(nil, quantities("500m", "")), 512, 50000, 0, 999},
		{"guaranteed", withResources(quantities("1", "1Gi"), quantities("1", "1Gi")), 1024, 100000, gi, -997},
		{"tiny limit", withResources(nil, quantities("1m", "")), 2, 1000, 0, 999},
		{"all of the memory", withResources(quantities("", "16Gi"), nil), 2, 0, 0, 3},
		{"huge", withResources(quantities("1000", ""), nil), 262144, 0, 0, 999},
	} {
		r := Resources(o, tc.pod, &tc.pod.Spec.Containers[0])
		if r.CpuShares != tc.shares || r.CpuQuota != tc.quota || r.MemoryLimitInBytes != tc.mem || r.OomScoreAdj != tc.oo || r.CpuPeriod != 100000 {
			t.Errorf("%s: got shares %d, quota %d/%d, memory %d, oom %d; want %d, %d, %d, %d", tc.name, r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes, r.OomScoreAdj, tc.shares, tc.quota, tc.mem, tc.oo)
		}
		if r.Unified != nil {
			t.Errorf("%s: unified settings on cgroup v1: %v", tc.name, r.Unified)
		}
	}
}

func TestNodeSettingsShapeResources(t *testing.T) {
	p := withResources(quantities("1", "1Gi"), quantities("1", "1Gi"))
	c := &p.Spec.Containers[0]
	if r := Resources(Options{}.WithDefaults(), p, c); r.OomScoreAdj != 0 {
		t.Errorf("a node that may not lower scores: got %d, want 0", r.OomScoreAdj)
	}
	if r := Resources(Options{NoCPUCFSQuota: true}.WithDefaults(), p, c); r.CpuQuota != 0 || r.CpuPeriod != 0 {
		t.Errorf("quota switched off: got %d/%d", r.CpuQuota, r.CpuPeriod)
	}
	if r := Resources(Options{CPUCFSQuotaPeriod: 10 * time.Millisecond}.WithDefaults(), p, c); r.CpuQuota != 10000 || r.CpuPeriod != 10000 {
		t.Errorf("a period of 10 ms: got %d/%d", r.CpuQuota, r.CpuPeriod)
	}
	yes, no := true, false
	if r := Resources(Options{CgroupV2: true, SwapControl: &yes}.WithDefaults(), p, c); r.Unified["memory.oom.group"] != "1" || r.Unified["memory.swap.max"] != "0" {
		t.Errorf("cgroup v2: got %v, want the whole container killed, and no swap", r.Unified)
	}
	if r := Resources(Options{SwapControl: &yes}.WithDefaults(), p, c); r.MemorySwapLimitInBytes != gi {
		t.Errorf("cgroup v1: got a limit of memory and swap of %d, want no more than of memory", r.MemorySwapLimitInBytes)
	}
	if r := Resources(Options{CgroupV2: true, SingleProcessOOMKill: &yes, SwapControl: &no}.WithDefaults(), p, c); r.Unified != nil {
		t.Errorf("singleProcessOOMKill: got %v", r.Unified)
	}
	c.Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	r := Resources(Options{HugePageSizes: []string{"2MB", "1GB"}}.WithDefaults(), p, c)
	if len(r.HugepageLimits) != 2 || r.HugepageLimits[0].Limit != 4<<20 || r.HugepageLimits[1].Limit != 0 {
		t.Errorf("huge pages: got %v", r.HugepageLimits)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: quantities("2", "2Gi")}
	c.Resources = v1.ResourceRequirements{}
	if r := Resources(Options{}.WithDefaults(), p, c); r.CpuQuota != 200000 || r.MemoryLimitInBytes != 2*gi {
		t.Errorf("the pod's own limits: got quota %d, memory %d", r.CpuQuota, r.MemoryLimitInBytes)
	}
}

func TestOOMScoreOfCriticalAndSidecar(t *testing.T) {
	o := Options{MemoryCapacity: 10 * gi, AllowNegativeOOMScore: true}
	critical := int32(2_000_000_000)
	p := withResources(nil, nil)
	p.Spec.Priority, p.Spec.PriorityClassName = &critical, "system-node-critical"
	if got := oomScoreAdj(o, p, &p.Spec.Containers[0]); got != -997 {
		t.Errorf("node critical: got %d, want -997", got)
	}
	p.Spec.PriorityClassName = ""
	if got := oomScoreAdj(o, p, &p.Spec.Containers[0]); got != 1000 {
		t.Errorf("critical, not to the node: got %d, want 1000", got)
	}
	p.Spec.Priority, p.Spec.PriorityClassName = nil, "system-node-critical"
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	if got := oomScoreAdj(o, p, &p.Spec.Containers[0]); got != -997 {
		t.Errorf("a static pod of that class: got %d, want -997", got)
	}
	always := v1.ContainerRestartPolicyAlways
	p = withResources(quantities("", "5Gi"), nil)
	p.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: quantities("", "1Gi")}}}
	if got := oomScoreAdj(o, p, &p.Spec.InitContainers[0]); got != 500 {
		t.Errorf("sidecar: got %d, want 500, not above its main container", got)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: quantities("", "8Gi")}
	if got := oomScoreAdj(o, p, &p.Spec.Containers[0]); got != 400 {
		t.Errorf("a pod that requests 2Gi more than its two containers: got %d, want 400", got)
	}
	if got := oomScoreAdj(o, p, &p.Spec.InitContainers[0]); got != 400 {
		t.Errorf("its sidecar: got %d, want 400", got)
	}
}

func TestSwap(t *testing.T) {
	yes := true
	o := Options{CgroupV2: true, SwapControl: &yes, LimitedSwap: true, MemoryCapacity: 16 * gi, SwapCapacity: 4 * gi}.WithDefaults()
	static := withResources(quantities("", "4Gi"), nil)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	for name, c := range map[string]struct {
		o    Options
		pod  *v1.Pod
		want string
	}{
		"its share":                 {o, withResources(quantities("", "4Gi"), nil), "1073741824"},
		"its share below a limit":   {o, withResources(quantities("", "4Gi"), quantities("", "8Gi")), "1073741824"},
		"a request that is a limit": {o, withResources(quantities("", "4Gi"), quantities("", "4Gi")), "0"},
		"no memory named":           {o, withResources(quantities("1", ""), nil), "0"},
		"guaranteed":                {o, withResources(quantities("1", "4Gi"), quantities("1", "4Gi")), "0"},
		"best effort":               {o, withResources(nil, nil), "0"},
		"critical":                  {o, static, "0"},
		"more than the node has":    {o, withResources(quantities("", "17Gi"), nil), "0"},
		"NoSwap":                    {Options{CgroupV2: true, SwapControl: &yes}.WithDefaults(), withResources(quantities("", "4Gi"), nil), "0"},
	} {
		if got := Resources(c.o, c.pod, &c.pod.Spec.Containers[0]).Unified["memory.swap.max"]; got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[v1.Signal]runtimeapi.Signal{
		v1.SIGTERM: runtimeapi.Signal_SIGNAL_SIGTERM, v1.SIGRTMINPLUS1: runtimeapi.Signal_SIGNAL_SIGRTMINPLUS1, v1.SIGRTMAXMINUS14: runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14,
		v1.SIGRTMIN: runtimeapi.Signal_SIGNAL_SIGRTMIN, v1.SIGCLD: runtimeapi.Signal_SIGNAL_SIGCLD, "": runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT,
	} {
		if got := stopSignal(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestEverySignalOfTheAPIReachesTheRuntime: CRI renamed them all in 1.37, and a name that
// it does not know is the runtime's default.
func TestEverySignalOfTheAPIReachesTheRuntime(t *testing.T) {
	signals := 0
	for number, name := range runtimeapi.Signal_name {
		name, ok := strings.CutPrefix(name, "SIGNAL_SIG")
		if !ok {
			continue
		}
		signals++
		s := v1.Signal("SIG" + strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name))
		if got := stopSignal(s); int32(got) != number || number == 0 {
			t.Errorf("%s: got %v, want %d", s, got, number)
		}
	}
	if signals < 60 {
		t.Errorf("CRI has %d signals", signals)
	}
}

// TestTheResourcesOfAPodAreSentWithoutItsOverhead, which is sent beside them.
func TestTheResourcesOfAPodAreSentWithoutItsOverhead(t *testing.T) {
	whole := pod.ContainerResources{CPUShares: 1024, CPUQuota: 100_000, CPUPeriod: 100_000, MemoryLimitInBytes: 64 << 20}
	for name, tt := range map[string]struct {
		cpu, memory string
		whole       pod.ContainerResources
		want        pod.ContainerResources
	}{
		"none":            {"", "", whole, whole},
		"both":            {"250m", "16Mi", whole, pod.ContainerResources{CPUShares: 768, CPUQuota: 75_000, CPUPeriod: 100_000, MemoryLimitInBytes: 48 << 20}},
		"CPU alone":       {"500m", "", whole, pod.ContainerResources{CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryLimitInBytes: 64 << 20}},
		"no limits":       {"250m", "16Mi", pod.ContainerResources{CPUShares: 1024}, pod.ContainerResources{CPUShares: 768}},
		"no quota":        {"250m", "", pod.ContainerResources{CPUShares: 1024, CPUQuota: -1, CPUPeriod: 100_000}, pod.ContainerResources{CPUShares: 768, CPUQuota: -1, CPUPeriod: 100_000}},
		"more than it is": {"4", "1Gi", whole, pod.ContainerResources{CPUShares: 2, CPUPeriod: 100_000}},
	} {
		p := &v1.Pod{}
		for resourceName, text := range map[v1.ResourceName]string{v1.ResourceCPU: tt.cpu, v1.ResourceMemory: tt.memory} {
			if text != "" {
				if p.Spec.Overhead == nil {
					p.Spec.Overhead = v1.ResourceList{}
				}
				p.Spec.Overhead[resourceName] = resource.MustParse(text)
			}
		}
		overhead, rest := SandboxUpdate(Options{}, p, tt.whole)
		got := pod.ContainerResources{CPUShares: rest.CpuShares, CPUQuota: rest.CpuQuota, CPUPeriod: rest.CpuPeriod, MemoryLimitInBytes: rest.MemoryLimitInBytes}
		memory := p.Spec.Overhead[v1.ResourceMemory]
		if got != tt.want || overhead.GetMemoryLimitInBytes() != memory.Value() {
			t.Errorf("%s: got %+v and an overhead of %d, want %+v", name, got, overhead.GetMemoryLimitInBytes(), tt.want)
		}
	}
}

// TestMemoryQoS: a new container gets what differs from the kernel's defaults; an update also
// resets what the container may still have.
func TestMemoryQoS(t *testing.T) {
	no, yes := false, true
	o := Options{CgroupV2: true, SwapControl: &no, SingleProcessOOMKill: &yes, MemoryQoS: pod.MemoryQoSRules{Tiered: true, ThrottlingFactor: 0.5}}.WithDefaults()
	p := withResources(quantities("", "1Gi"), quantities("", "2Gi"))
	off := o
	off.MemoryQoS = pod.MemoryQoSRules{}
	v1 := o
	v1.CgroupV2 = false
	for name, c := range map[string]struct {
		o                Options
		created, updated map[string]string
	}{
		"on":  {o, map[string]string{"memory.low": "1073741824", "memory.high": "1610612736"}, map[string]string{"memory.min": "0", "memory.low": "1073741824", "memory.high": "1610612736"}},
		"off": {off, nil, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}},
		"v1":  {v1, nil, nil},
	} {
		created, updated := Resources(c.o, p, &p.Spec.Containers[0]), UpdatedResources(c.o, p, &p.Spec.Containers[0])
		if !maps.Equal(created.Unified, c.created) || !maps.Equal(updated.Unified, c.updated) {
			t.Errorf("%s: got %v at creation and %v at an update, want %v and %v", name, created.Unified, updated.Unified, c.created, c.updated)
		}
		want := pod.MemoryQoS{}
		if c.o.CgroupV2 {
			want = c.o.MemoryQoS.OfContainer(p, &p.Spec.Containers[0])
		}
		for _, r := range []*runtimeapi.LinuxContainerResources{created, updated} {
			if got := MemoryQoS(r); got != want {
				t.Errorf("%s: read back: got %+v, want %+v", name, got, want)
			}
		}
	}
}
