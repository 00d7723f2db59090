package cri

import (
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// The kubelet's constants: pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	minQuota     = 1000 // microseconds

	oomGuaranteed = -997
	oomBestEffort = 1000
	oomBurstLow   = 3   // 1000 + oomGuaranteed
	oomBurstHigh  = 999 // one below best effort

	criticalPriority = 2_000_001_000 // system-node-critical
)

// cpuShares from milli-CPU; 0 gives the kernel's least.
func cpuShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// cpuQuota in microseconds per period; 0 (no limit) for no CPU limit.
func cpuQuota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period.Microseconds()/1000, minQuota)
}

// linuxResources are a container's limits for the runtime.
func linuxResources(o Options, p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpuLimit := podLevelLimit(p, c, v1.ResourceCPU)
	request, hasRequest := c.Resources.Requests[v1.ResourceCPU]
	if !hasRequest {
		request = cpuLimit
	}
	memory := podLevelLimit(p, c, v1.ResourceMemory)
	r := limits(o, request.MilliValue(), cpuLimit.MilliValue(), memory.Value())
	r.OomScoreAdj = oomScoreAdj(o, p, c)
	r.HugepageLimits = hugepageLimits(o.HugePageSizes, p, c)
	forbidSwap(o, r)
	return r
}

// limits are what containers and sandboxes have in common; CPU in thousandths,
// memory in bytes, 0 for no limit.
func limits(o Options, cpuRequest, cpuLimit, memory int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: cpuShares(cpuRequest), MemoryLimitInBytes: memory}
	if !o.NoCPUCFSQuota {
		r.CpuQuota = cpuQuota(cpuLimit, o.CPUCFSQuotaPeriod)
		r.CpuPeriod = o.CPUCFSQuotaPeriod.Microseconds()
	}
	// runc takes unified settings on cgroup v2 only.
	if o.CgroupV2 && (o.SingleProcessOOMKill == nil || !*o.SingleProcessOOMKill) {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// forbidSwap is the kubelet's NoSwap, its default: a container with a memory
// limit would otherwise go on in the node's swap beyond it. Cgroup v1 can only
// say so together with a memory limit.
func forbidSwap(o Options, r *runtimeapi.LinuxContainerResources) {
	switch {
	case !*o.SwapControl:
	case !o.CgroupV2:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	default:
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified["memory.swap.max"] = "0"
	}
}

// overheadResources are what the sandbox itself may take (spec.overhead);
// requests and limits are the same.
func overheadResources(o Options, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	if p.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	cpu, memory := p.Spec.Overhead[v1.ResourceCPU], p.Spec.Overhead[v1.ResourceMemory]
	return limits(o, cpu.MilliValue(), cpu.MilliValue(), memory.Value())
}

// sandboxResources is the sum of a pod's containers, for runtimes that make a
// virtual machine of that size. A container without a limit adds nothing to it,
// as in the kubelet: CRI documents the sum of what is set.
func sandboxResources(o Options, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	var request, limit, memory int64
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		l, m := c.Resources.Limits[v1.ResourceCPU], c.Resources.Limits[v1.ResourceMemory]
		r, has := c.Resources.Requests[v1.ResourceCPU]
		if !has {
			r = l
		}
		request, limit, memory = request+r.MilliValue(), limit+l.MilliValue(), memory+m.Value()
	}
	return limits(o, request, limit, memory)
}

// podLevelLimit is the container's limit, or the pod's own where the container
// has none.
func podLevelLimit(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if p.Spec.Resources != nil {
		return p.Spec.Resources.Limits[name]
	}
	return resource.Quantity{}
}

func oomScoreAdj(o Options, p *v1.Pod, c *v1.Container) int64 {
	score := wantedOOMScore(o.MemoryCapacity, p, c)
	if score < 0 && !o.AllowNegativeOOMScore {
		return 0
	}
	return score
}

func wantedOOMScore(capacity int64, p *v1.Pod, c *v1.Container) int64 {
	if p.Spec.Priority != nil && *p.Spec.Priority >= criticalPriority {
		return oomGuaranteed
	}
	switch pod.QOSClass(p) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	if capacity <= 0 {
		return oomBurstHigh
	}
	request := memoryRequest(c)
	if isSidecar(p, c) {
		// A sidecar outlives the smallest main container.
		least := int64(-1)
		for i := range p.Spec.Containers {
			if r := memoryRequest(&p.Spec.Containers[i]); least < 0 || r < least {
				least = r
			}
		}
		request = max(request, least)
	}
	return min(max(1000-1000*request/capacity, oomBurstLow), oomBurstHigh)
}

func memoryRequest(c *v1.Container) int64 {
	q := c.Resources.Requests[v1.ResourceMemory]
	return q.Value()
}

func isSidecar(p *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways {
		return false
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

// hugepageLimits gives each page size of the node a limit: 0, or what the pod
// and then the container ask for.
func hugepageLimits(sizes []string, p *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	wanted := map[string]uint64{}
	read := func(list v1.ResourceList) {
		for name, q := range list {
			size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			if bytes, err := resource.ParseQuantity(size); err == nil {
				wanted[pageSizeName(bytes.Value())] = uint64(q.Value())
			}
		}
	}
	if p.Spec.Resources != nil {
		read(p.Spec.Resources.Limits)
	}
	read(c.Resources.Limits)
	var out []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: wanted[size]})
	}
	return out
}

// pageSizeName is a page size as runc names it: 2097152 is 2MB.
func pageSizeName(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
