package usage

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"

	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// measurePeriod is the least time between two measurements of a content, upstream's
	// evictionMonitoringPeriod (pkg/kubelet/kubelet.go).
	measurePeriod = 10 * time.Second
	// evictionGrace is the grace period of the containers, upstream's
	// immediateEvictionGracePeriodSeconds.
	evictionGrace = time.Second
)

// storageLimit is one limit of a pod.
type storageLimit struct {
	bytes int64
	// signal is the eviction signal in the kubelet's metrics, message the kubelet's
	// eviction message.
	signal, message    string
	appliesTo          func(*watchedContent) bool // whether a content counts towards the limit
	includesContainers bool                       // whether contents of running containers do
}

// limitsOf returns the pod's limits in the order in which upstream checks them
// (localStorageEviction in pkg/kubelet/eviction). Sidecars have theirs, as in upstream
// 1.37 (kubernetes/kubernetes#138462); other init containers have none.
func limitsOf(p *v1.Pod) []storageLimit {
	var all []storageLimit
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		e := v.EmptyDir
		if e == nil || e.Medium != v1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() != 1 {
			continue // upstream does not enforce a sizeLimit of 0 either
		}
		all = append(all, storageLimit{
			e.SizeLimit.Value(), "emptydirfs.limit", fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, e.SizeLimit.String()),
			func(c *watchedContent) bool { return c.volume == v.Name }, false,
		})
	}
	// The limit of a pod is the sum of its containers' limits, and is compared with the
	// usage of all containers, including those without a limit. A limit of 0 counts.
	if q, found := resources.PodLimits(p, resources.PodResourcesOptions{})[v1.ResourceEphemeralStorage]; found {
		all = append(all, storageLimit{
			q.Value(), "ephemeralpodfs.limit", fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", q.String()),
			func(*watchedContent) bool { return true }, true,
		})
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if q := c.Resources.Limits.StorageEphemeral(); !q.IsZero() && (kind == pod.RegularContainer || kind == pod.SidecarContainer) {
			all = append(all, storageLimit{
				q.Value(), "ephemeralcontainerfs.limit", fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, q.String()),
				func(w *watchedContent) bool {
					return w.container == c.Name && (w.layer == nil || !w.layer.onImageFS)
				}, true,
			})
		}
	}
	return all
}

// Limited says whether the pod has a limit for Watch.
func (*Meter) Limited(p *v1.Pod) bool { return limitsOf(p) != nil }

// Watch blocks until the pod exceeds one of its limits, and returns upstream's eviction
// message. exceeded is false if ctx has ended, or at once for a pod without a limit. The
// pod's directories need not exist yet.
func (m *Meter) Watch(ctx context.Context, p *v1.Pod) (e pod.Eviction, exceeded bool) {
	w := newWatch(m, p)
	for len(w.limits) > 0 {
		due, at := w.next()
		if !wake.Until(ctx, nil, at) {
			break
		}
		if due == nil {
			w.refreshContainers()
			continue
		}
		w.measure(ctx, due)
		if b := w.exceeded(); b != nil {
			g := evictionGrace
			return pod.Eviction{Signal: b.signal, Grace: &g, Message: b.message}, true
		}
	}
	return pod.Eviction{}, false
}
