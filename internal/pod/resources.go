package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The kernel's limits for a group's weight and quota, as upstream has them
// (pkg/kubelet/cm/helpers_linux.go).
const (
	MinCPUShares = 2
	maxCPUShares = 262144
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds
)

// CPUShares returns the weight of a request in thousandths of a processor, 1024 for each
// processor (also on cgroup v2, where CPUWeight converts it). Without a request it returns
// the kernel's minimum.
func CPUShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, MinCPUShares), maxCPUShares)
}

// CPUWeight converts that weight to the scale of cgroup v2, 1 to 10000, as the kubelet does
// for pods. The OCI runtime converts containers' own weights, possibly in another way.
func CPUWeight(shares int64) int64 {
	return 1 + (min(max(shares, MinCPUShares), maxCPUShares)-MinCPUShares)*9999/(maxCPUShares-MinCPUShares)
}

// CPUQuota converts a limit in thousandths of a processor to microseconds for each period,
// at least one millisecond; 0 for no limit.
func CPUQuota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period.Microseconds()/1000, minQuota)
}

// IsLimited says whether a pod as a whole has a limit of a resource: one of its own, or one
// for each container that is not ephemeral. Otherwise the sum of the limits would also
// limit containers that are meant to have none.
func IsLimited(p *v1.Pod, name v1.ResourceName) bool {
	isSet := func(limits v1.ResourceList) bool {
		limit := limits[name]
		return !limit.IsZero()
	}
	if r := p.Spec.Resources; r != nil && isSet(r.Limits) {
		return true
	}
	for c, kind := range ContainerSpecs(&p.Spec) {
		if kind != EphemeralContainer && !isSet(c.Resources.Limits) {
			return false
		}
	}
	return true
}
