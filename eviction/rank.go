package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/eviction/threshold"
	"podd/internal/pod"
)

// Usage is what pods use, by UID. A pod that is missing in it could not be measured.
type Usage map[pod.UID]*stats.PodStats

// storageParts is the part of a pod's storage that counts.
type storageParts int

const (
	layers storageParts = 1 << iota
	logs
	localVolumes
)

// partsOf returns the parts of a pod's storage that are on the file system of a signal.
func partsOf(s threshold.Signal, separateImages bool) storageParts {
	switch {
	case !separateImages:
		return layers | logs | localVolumes
	case s == threshold.ImageFSAvailable || s == threshold.ImageFSInodesFree:
		return layers
	default:
		return logs | localVolumes
	}
}

// rank sorts pods by the order in which they are evicted for a signal, as upstream does:
// first pods that use more than they request, or that have an unknown usage, then those of
// low priority, then those that use most above their request. No pod requests processes.
func rank(pods []*v1.Pod, s threshold.Signal, separateImages bool, used Usage) {
	takes := func(p *v1.Pod, u *stats.PodStats) resource.Quantity { return podUsage(p, u, s, separateImages) }
	excess := func(p *v1.Pod, u *stats.PodStats) resource.Quantity {
		q := takes(p, u)
		if r := s.Resource(); r == threshold.ResourceInodes {
			// Upstream subtracts the bytes that are requested from inodes that are used.
			q.Sub(request(p, v1.ResourceEphemeralStorage))
		} else if r != threshold.ResourcePIDs {
			q.Sub(request(p, r))
		}
		return q
	}
	exceeds := func(p *v1.Pod, u *stats.PodStats) bool {
		q := takes(p, u)
		return q.Cmp(request(p, s.Resource())) > 0
	}
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int {
		ofA, ofB := used[a.UID], used[b.UID]
		known := ofA != nil && ofB != nil
		if s.Resource() != threshold.ResourcePIDs {
			first := func(p *v1.Pod, u *stats.PodStats) bool {
				if known {
					return exceeds(p, u)
				}
				return u == nil
			}
			if n := firstTrue(first(a, ofA), first(b, ofB)); n != 0 {
				return n
			}
		}
		if n := cmp.Compare(pod.Priority(a), pod.Priority(b)); n != 0 {
			return n
		}
		if !known {
			return firstTrue(ofA == nil, ofB == nil)
		}
		mine, others := excess(a, ofA), excess(b, ofB)
		return others.Cmp(mine)
	})
}

func firstTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// request returns what a pod requests of a resource; its overhead counts where it requests
// any.
func request(p *v1.Pod, name v1.ResourceName) resource.Quantity {
	q := resources.PodRequests(p, resources.PodResourcesOptions{
		SkipContainerLevelResources: resources.IsPodLevelResourcesSet(p), ExcludeOverhead: true,
	})[name].DeepCopy()
	if more, ok := p.Spec.Overhead[name]; ok && !q.IsZero() {
		q.Add(more)
	}
	return q
}

// podUsage returns how much a pod uses of a signal's resource.
func podUsage(p *v1.Pod, u *stats.PodStats, s threshold.Signal, separateImages bool) resource.Quantity {
	switch s.Resource() {
	case v1.ResourceMemory:
		return memoryOf(u.Memory)
	case threshold.ResourcePIDs:
		if u.ProcessStats == nil {
			return resource.Quantity{}
		}
		return quantity(u.ProcessStats.ProcessCount, resource.DecimalSI)
	}
	of := func(fs *stats.FsStats) resource.Quantity {
		switch {
		case fs == nil:
			return resource.Quantity{}
		case s.Resource() == threshold.ResourceInodes:
			return quantity(fs.InodesUsed, resource.DecimalSI)
		}
		return quantity(fs.UsedBytes, resource.BinarySI)
	}
	count := partsOf(s, separateImages)
	var sum resource.Quantity
	for i := range u.Containers {
		c := &u.Containers[i]
		if count&layers != 0 {
			sum.Add(of(c.Rootfs))
		}
		if count&logs != 0 {
			sum.Add(of(c.Logs))
		}
	}
	if count&localVolumes == 0 {
		return sum
	}
	for i := range u.VolumeStats {
		if v := &u.VolumeStats[i]; isLocal(p, v.Name) {
			sum.Add(of(&v.FsStats))
		}
	}
	return sum
}

// isLocal says whether a volume is on the node's disk (localVolumeNames upstream).
func isLocal(p *v1.Pod, volume string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == volume && (v.HostPath != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault)
	})
}

func memoryOf(m *stats.MemoryStats) resource.Quantity {
	if m == nil {
		return resource.Quantity{}
	}
	return quantity(m.WorkingSetBytes, resource.BinarySI)
}

func quantity(n *uint64, format resource.Format) resource.Quantity {
	if n == nil {
		return resource.Quantity{}
	}
	return *resource.NewQuantity(int64(*n), format)
}
