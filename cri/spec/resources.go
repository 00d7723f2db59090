package spec

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/hugepage"
	"podd/internal/pod"
)

// The kubelet's constants: pkg/kubelet/qos/policy.go.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
	oomBurstLow   = 3   // 1000 + oomGuaranteed
	oomBurstHigh  = 999 // one below best effort

	nodeCritical = "system-node-critical"
)

// Resources returns the CRI resources for the creation of a container.
func Resources(o Options, p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpuLimit := podLevelLimit(p, c, v1.ResourceCPU)
	request, hasRequest := c.Resources.Requests[v1.ResourceCPU]
	if !hasRequest {
		request = cpuLimit
	}
	memory := podLevelLimit(p, c, v1.ResourceMemory)
	r := linuxResources(o, request.MilliValue(), cpuLimit.MilliValue(), memory.Value())
	r.OomScoreAdj = oomScoreAdj(o, p, c)
	r.HugepageLimits = hugepageLimits(o.HugePageSizes, p, c)
	if o.GetsSwap(p, c) {
		o.limitSwap(r, memoryRequest(c))
	} else {
		forbidSwap(o, r)
	}
	if o.CgroupV2 {
		setMemoryQoS(r, o.MemoryQoS.OfContainer(p, c))
	}
	return r
}

// UpdatedResources returns the CRI resources for an update of an existing container. It also
// names the kernel's defaults of MemoryQoS, which Resources leaves out: the container may have
// other values.
func UpdatedResources(o Options, p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	r := Resources(o, p, c)
	if !o.CgroupV2 {
		return r
	}
	for name, value := range noMemoryQoS {
		if _, ok := r.Unified[name]; !ok {
			unify(r, name, value)
		}
	}
	return r
}

// noMemoryQoS has the values of a new cgroup.
var noMemoryQoS = map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}

func setMemoryQoS(r *runtimeapi.LinuxContainerResources, q pod.MemoryQoS) {
	set := func(name string, bytes int64) {
		if bytes > 0 {
			unify(r, name, strconv.FormatInt(bytes, 10))
		}
	}
	set("memory.min", q.Min)
	set("memory.low", q.Low)
	set("memory.high", q.High)
}

// MemoryQoS reads what Resources and UpdatedResources write. It ignores a value that podd would
// not write.
func MemoryQoS(r *runtimeapi.LinuxContainerResources) pod.MemoryQoS {
	if len(r.GetUnified()) == 0 {
		return pod.MemoryQoS{}
	}
	bytes := func(name string) int64 {
		n, err := strconv.ParseInt(r.Unified[name], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return pod.MemoryQoS{Min: bytes("memory.min"), Low: bytes("memory.low"), High: bytes("memory.high")}
}

// unify sets a file of cgroup v2.
func unify(r *runtimeapi.LinuxContainerResources, name, value string) {
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified[name] = value
}

// linuxResources returns the settings that containers and sandboxes have in common; CPU is in
// thousandths, memory in bytes, and 0 means no limit.
func linuxResources(o Options, cpuRequest, cpuLimit, memory int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: pod.CPUShares(cpuRequest), MemoryLimitInBytes: memory}
	if !o.NoCPUCFSQuota {
		r.CpuQuota = pod.CPUQuota(cpuLimit, o.CPUCFSQuotaPeriod)
		r.CpuPeriod = o.CPUCFSQuotaPeriod.Microseconds()
	}
	// runc takes unified settings on cgroup v2 only.
	if o.CgroupV2 && (o.SingleProcessOOMKill == nil || !*o.SingleProcessOOMKill) {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// forbidSwap applies the kubelet's NoSwap, its default: otherwise a container would go on
// beyond its memory limit in the node's swap. Cgroup v1 can forbid swap only together with
// a memory limit.
func forbidSwap(o Options, r *runtimeapi.LinuxContainerResources) {
	switch {
	case !*o.SwapControl:
	case !o.CgroupV2:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	default:
		unify(r, "memory.swap.max", "0")
	}
}

// GetsSwap says whether a container of a pod gets a share of the node's swap, which a
// resize of its memory would change. It gets one with LimitedSwap, on cgroup v2, if it is a
// container of a Burstable pod and requests some memory, but less than its limit
// (KEP-2400). Critical pods get none.
func (o Options) GetsSwap(p *v1.Pod, c *v1.Container) bool {
	if !*o.SwapControl || !o.LimitedSwap || !o.CgroupV2 || pod.IsCritical(p) || pod.QOSClass(p) != v1.PodQOSBurstable {
		return false
	}
	request, limit := c.Resources.Requests[v1.ResourceMemory], c.Resources.Limits[v1.ResourceMemory]
	return request.Cmp(limit) != 0
}

// limitSwap gives a container a share of the swap in proportion to its request of the
// node's memory.
func (o Options) limitSwap(r *runtimeapi.LinuxContainerResources, request int64) {
	share := int64(0)
	if o.MemoryCapacity > 0 && request <= o.MemoryCapacity {
		share = int64(float64(request) / float64(o.MemoryCapacity) * float64(o.SwapCapacity))
	}
	unify(r, "memory.swap.max", strconv.FormatInt(share, 10))
}

// overheadResources returns the resources of the sandbox itself (spec.overhead); requests
// and limits are the same.
func overheadResources(o Options, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	if p.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	cpu, memory := p.Spec.Overhead[v1.ResourceCPU], p.Spec.Overhead[v1.ResourceMemory]
	return linuxResources(o, cpu.MilliValue(), cpu.MilliValue(), memory.Value())
}

// sandboxResources returns the sum of what a pod's containers need, by the API's rules, for
// runtimes that make a virtual machine of that size.
func sandboxResources(o Options, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	sums := helper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limit := helper.PodRequests(p, sums), helper.PodLimits(p, sums)
	request, has := requests[v1.ResourceCPU]
	if !has {
		request = *limit.Cpu()
	}
	return linuxResources(o, request.MilliValue(), limit.Cpu().MilliValue(), limit.Memory().Value())
}

// SandboxUpdate splits r, the resources of a pod including its overhead, into the overhead and
// the rest, as the runtime wants them at a resize. What r does not limit has no limit.
func SandboxUpdate(o Options, p *v1.Pod, r pod.ContainerResources) (overhead, rest *runtimeapi.LinuxContainerResources) {
	cpu, memory := p.Spec.Overhead[v1.ResourceCPU], p.Spec.Overhead[v1.ResourceMemory]
	if !cpu.IsZero() {
		r.CPUShares = max(r.CPUShares-pod.CPUShares(cpu.MilliValue()), pod.MinCPUShares)
		if r.CPUQuota > 0 {
			period := time.Duration(r.CPUPeriod) * time.Microsecond
			r.CPUQuota = max(r.CPUQuota-pod.CPUQuota(cpu.MilliValue(), period), 0)
		}
	}
	if r.MemoryLimitInBytes > 0 {
		r.MemoryLimitInBytes = max(r.MemoryLimitInBytes-memory.Value(), 0)
	}
	return overheadResources(o, p), &runtimeapi.LinuxContainerResources{
		CpuShares: r.CPUShares, CpuQuota: r.CPUQuota, CpuPeriod: r.CPUPeriod, MemoryLimitInBytes: r.MemoryLimitInBytes,
	}
}

// podLevelLimit returns the container's limit, or the pod's own if the container has none.
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
	if pod.IsCritical(p) && p.Spec.PriorityClassName == nodeCritical {
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
	if _, kind := pod.ContainerSpec(&p.Spec, c.Name); kind == pod.SidecarContainer {
		// A sidecar outlives the smallest main container.
		least := int64(-1)
		for i := range p.Spec.Containers {
			if r := memoryRequest(&p.Spec.Containers[i]); least < 0 || r < least {
				least = r
			}
		}
		request = max(request, least)
	}
	request += remainingMemoryPerContainer(p)
	return min(max(1000-1000*request/capacity, oomBurstLow), oomBurstHigh)
}

// remainingMemoryPerContainer is each container's equal part of the memory that the pod itself
// requests and its containers do not (KEP-2837).
func remainingMemoryPerContainer(p *v1.Pod) int64 {
	if !helper.IsPodLevelRequestsSet(p) {
		return 0
	}
	whole := p.Spec.Resources.Requests.Memory()
	if whole.IsZero() {
		return 0
	}
	claimed := helper.AggregateContainerRequests(p, helper.PodResourcesOptions{})
	return (whole.Value() - claimed.Memory().Value()) / int64(len(p.Spec.Containers)+len(p.Spec.InitContainers))
}

func memoryRequest(c *v1.Container) int64 {
	q := c.Resources.Requests[v1.ResourceMemory]
	return q.Value()
}

// hugepageLimits gives each page size of the node a limit: the limit of the pod, replaced
// by that of the container, or 0.
func hugepageLimits(sizes []string, p *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	wanted := map[string]uint64{}
	read := func(list v1.ResourceList) {
		for name, q := range list {
			if size, ok, err := hugepage.ResourceSize(name); ok && err == nil {
				wanted[hugepage.CgroupName(size)] = uint64(q.Value())
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
