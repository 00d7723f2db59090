package cgroup

import (
	"log/slog"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"podd/internal/hugepage"
	"podd/internal/pod"
)

// ResourcePIDs is the name of process IDs in a node's resource lists; pods
// cannot request it.
const ResourcePIDs v1.ResourceName = "pid"

// Settings are the cgroup settings of the node's configuration. With the zero
// value only pods have limits.
type Settings struct {
	// NoCPUQuota leaves CPU limits unenforced (cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is cpuCFSQuotaPeriod; 0 is 100 ms.
	CPUPeriod time.Duration
	// PodPIDs is podPidsLimit, the maximum number of processes and threads of a
	// pod; 0 or less means no limit.
	PodPIDs int64
	// Pods limits all pods together: cpu (a weight), memory, ResourcePIDs and
	// huge pages; nil means no limits.
	Pods v1.ResourceList
	// OnLimits is called after an attempt to limit all pods together, with the cgroup and the
	// error, if any. It is called again only when the outcome changes. It may be nil, and must
	// not block.
	OnLimits func(cgroup string, err error)
	// MemoryQoS protects and throttles memory, on cgroup v2 only. The zero value does neither,
	// and clears what an earlier configuration has set.
	MemoryQoS pod.MemoryQoSRules
	// Log receives problems that do not keep pods from running; nil discards
	// them.
	Log *slog.Logger
}

// Limits are the limits of a cgroup. A field that is 0 is left as the kernel
// sets it.
type Limits struct {
	// CPUShares is the CPU weight, 1024 per CPU (on v2, too).
	CPUShares int64
	// CPUQuota and CPUPeriod are in microseconds; a quota of -1 means no limit.
	CPUQuota, CPUPeriod int64
	// Memory is in bytes.
	Memory int64
	PIDs   int64
	// HugePages is the limit in bytes by page size in bytes. Sizes that it lacks
	// are limited to 0 if LimitAllHugePages is set, else left alone.
	HugePages         map[int64]int64
	LimitAllHugePages bool
	// MemoryQoS is written if SetMemoryQoS is true, including zeros. A High of keepHigh is
	// never written.
	MemoryQoS    pod.MemoryQoS
	SetMemoryQoS bool
}

// keepHigh leaves memory.high as it is. Above the pods it belongs to the administrator.
const keepHigh = -1

// PodLimits computes a pod's limits as upstream's ResourceConfigForPod and
// ApplyPodLevelMemoryHigh do (pkg/kubelet/cm/helpers_linux.go): from the API's sums of requests and limits,
// or the pod-level ones, overhead included. A quota or memory limit is set only
// if every container has one; otherwise the sum would also limit containers that
// are meant to have no limit.
func PodLimits(s Settings, p *v1.Pod) Limits {
	requests := helper.PodRequests(p, helper.PodResourcesOptions{})
	limits := helper.PodLimits(p, helper.PodResourcesOptions{})
	l := Limits{CPUShares: pod.MinCPUShares, PIDs: max(s.PodPIDs, 0), HugePages: hugePages(requests), LimitAllHugePages: true}
	l.MemoryQoS, l.SetMemoryQoS = s.MemoryQoS.OfPod(p), true
	class := pod.QOSClass(p)
	if class == v1.PodQOSBestEffort {
		return l
	}
	l.CPUShares = pod.CPUShares(requests.Cpu().MilliValue())
	if class == v1.PodQOSGuaranteed || pod.IsLimited(p, v1.ResourceCPU) {
		l.CPUPeriod = s.period().Microseconds()
		if l.CPUQuota = pod.CPUQuota(limits.Cpu().MilliValue(), s.period()); s.NoCPUQuota {
			l.CPUQuota = -1
		}
	}
	if class == v1.PodQOSGuaranteed || pod.IsLimited(p, v1.ResourceMemory) {
		l.Memory = limits.Memory().Value()
	}
	return l
}

// rootLimits are the limits of all pods together.
func rootLimits(list v1.ResourceList) Limits {
	if list == nil {
		return Limits{}
	}
	pids := list[ResourcePIDs]
	return Limits{
		CPUShares: pod.CPUShares(list.Cpu().MilliValue()), Memory: list.Memory().Value(), PIDs: pids.Value(),
		HugePages: hugePages(list), LimitAllHugePages: true,
	}
}

func (s Settings) period() time.Duration {
	if s.CPUPeriod == 0 {
		return 100 * time.Millisecond
	}
	return s.CPUPeriod
}

func hugePages(list v1.ResourceList) map[int64]int64 {
	var pages map[int64]int64
	for name, q := range list {
		size, ok, err := hugepage.ResourceSize(name)
		if !ok || err != nil {
			continue // validation rejects a pod with an invalid one
		}
		if pages == nil {
			pages = map[int64]int64{}
		}
		pages[size] += q.Value()
	}
	return pages
}

// maxLimits returns the greater of both in each field: the limits of a cgroup while
// those within it change from one to the other.
func maxLimits(from, to Limits) Limits {
	out := to
	out.CPUShares = max(from.CPUShares, to.CPUShares)
	// No limit (-1, or not set) is greater than any.
	if from.CPUQuota <= 0 || to.CPUQuota > 0 && from.CPUQuota > to.CPUQuota {
		out.CPUQuota, out.CPUPeriod = from.CPUQuota, from.CPUPeriod
	}
	if from.Memory <= 0 || to.Memory > 0 && from.Memory > to.Memory {
		out.Memory = from.Memory
	}
	out.MemoryQoS.Min = max(from.MemoryQoS.Min, to.MemoryQoS.Min)
	out.MemoryQoS.Low = max(from.MemoryQoS.Low, to.MemoryQoS.Low)
	if from.MemoryQoS.High == 0 || to.MemoryQoS.High != 0 && from.MemoryQoS.High > to.MemoryQoS.High {
		out.MemoryQoS.High = from.MemoryQoS.High
	}
	return out
}

func same(a, b Limits) bool {
	pages := maps.Equal(a.HugePages, b.HugePages)
	a.HugePages, b.HugePages = nil, nil
	return pages && a.CPUShares == b.CPUShares && a.CPUQuota == b.CPUQuota && a.CPUPeriod == b.CPUPeriod &&
		a.Memory == b.Memory && a.PIDs == b.PIDs && a.LimitAllHugePages == b.LimitAllHugePages &&
		a.MemoryQoS == b.MemoryQoS && a.SetMemoryQoS == b.SetMemoryQoS
}

func weight(shares int64) int64 { return pod.CPUWeight(shares) }
