package pod

import (
	"os"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"
)

// MemoryQoS says how much of a cgroup's memory the kernel protects, and above which usage it
// throttles, in bytes (cgroup v2). The zero value is the kernel's default: neither.
type MemoryQoS struct {
	// Min is memory.min, which the kernel never reclaims.
	Min int64
	// Low is memory.low, which the kernel reclaims last.
	Low int64
	// High is memory.high, above which the kernel slows allocations down and reclaims;
	// 0 means no such limit.
	High int64
}

// MemoryQoSRules compute the MemoryQoS of pods and containers as the kubelet of 1.37 does
// (KEP-2570). The zero value gives them none, as with cgroup v1 or without the feature.
type MemoryQoSRules struct {
	// Tiered protects what is requested: by memory.min for Guaranteed pods, by memory.low
	// for Burstable ones (memoryReservationPolicy TieredReservation).
	Tiered bool
	// ThrottlingFactor, in (0, 1], sets memory.high to request + factor × (limit − request);
	// 0 sets no memory.high.
	ThrottlingFactor float64
	// Allocatable is the node's memory in bytes minus the reserved memory; 0 if unknown. It
	// counts as the limit of a container without one.
	Allocatable int64
}

// OfContainer returns the settings of a container's cgroup.
func (r MemoryQoSRules) OfContainer(p *v1.Pod, c *v1.Container) MemoryQoS {
	if r == (MemoryQoSRules{}) {
		return MemoryQoS{}
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	q := r.protection(p, request)
	if limit == request && limit != 0 {
		return q
	}
	if limit == 0 {
		if own := p.Spec.Resources; own != nil && !own.Limits.Memory().IsZero() {
			return q // the pod's memory.high counts for all its containers
		}
		limit = r.Allocatable
	}
	q.High = r.high(request, limit)
	return q
}

// OfPod returns the settings of a pod's cgroup. Only a pod with resources of its own has a
// memory.high; otherwise those of its containers suffice.
func (r MemoryQoSRules) OfPod(p *v1.Pod) MemoryQoS {
	if r == (MemoryQoSRules{}) {
		return MemoryQoS{}
	}
	requests, limits := helper.PodRequests(p, helper.PodResourcesOptions{}), helper.PodLimits(p, helper.PodResourcesOptions{})
	request := requests.Memory().Value()
	q := r.protection(p, request)
	if !helper.IsPodLevelResourcesSet(p) || !IsLimited(p, v1.ResourceMemory) {
		return q
	}
	if limit := limits.Memory().Value(); limit != request {
		q.High = r.high(request, limit)
	}
	return q
}

func (r MemoryQoSRules) protection(p *v1.Pod, request int64) MemoryQoS {
	switch {
	case !r.Tiered || request == 0:
		return MemoryQoS{}
	case QOSClass(p) == v1.PodQOSGuaranteed:
		return MemoryQoS{Min: request}
	default:
		return MemoryQoS{Low: request}
	}
}

// high returns a memory.high in whole pages, or 0 if it would not be above the request.
func (r MemoryQoSRules) high(request, limit int64) int64 {
	if r.ThrottlingFactor == 0 || limit == 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	high := int64(float64(request)+(float64(limit)-float64(request))*r.ThrottlingFactor) / page * page
	if high <= request {
		return 0
	}
	return high
}
