package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/admission"
	"podd/cgroup"
	"podd/config"
	"podd/cri"
	"podd/internal/features"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/volumes"
)

// cgroupTree returns podd's part of the cgroup hierarchies for a driver.
func (n *Node) cgroupTree(driver cgroup.Driver) *cgroup.Tree {
	return cgroup.NewTree(n.cgroupFacts, driver, cgroupRoot(n.cfg), cgroup.Settings{
		NoCPUQuota: !n.cfg.CPUQuota, CPUPeriod: n.cfg.CPUQuotaPeriod, PodPIDs: n.cfg.PodPIDsLimit, Pods: n.resources.CgroupLimits, OnLimits: n.recordLimits, MemoryQoS: n.memoryQoS(), Log: n.log,
	})
}

// recordLimits emits the kubelet's events about the limits of all pods together.
func (n *Node) recordLimits(cgroup string, err error) {
	if err != nil {
		n.recorder.NodeEvent(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", cgroup, err))
		return
	}
	n.recorder.NodeEvent(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// recordStart emits the kubelet's events at a start: the start itself, and problems of the
// machine.
func (n *Node) recordStart() {
	n.recorder.NodeEvent(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if n.cgroupFacts.Version != cgroup.V2 {
		n.recorder.NodeEvent(v1.EventTypeWarning, "CgroupV1", "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. "+
			"More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1")
	}
	if n.resources.Swap > 0 && !volumes.NoswapSupported() {
		n.recorder.NodeEvent(v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk",
			"The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.")
	}
}

// memoryQoS returns the rules by which memory is protected and throttled; none on cgroup v1.
func (n *Node) memoryQoS() pod.MemoryQoSRules {
	if n.cgroupFacts.Version != cgroup.V2 || !n.cfg.Features.Enabled(features.MemoryQoS) {
		return pod.MemoryQoSRules{}
	}
	reserved := n.cfg.Reserved[v1.ResourceMemory]
	return pod.MemoryQoSRules{
		Tiered: n.cfg.MemoryTieredReservation, ThrottlingFactor: n.cfg.MemoryThrottlingFactor, Allocatable: max(0, n.resources.Memory-reserved.Value()),
	}
}

// cgroupRoot returns the cgroup above those of all pods.
func cgroupRoot(cfg *config.Config) string {
	if cfg.CgroupRoot == "" {
		return cgroup.DefaultRoot
	}
	return filepath.Join("/", cfg.CgroupRoot, "kubepods")
}

// podCgroups creates, updates and removes the cgroups of pods.
type podCgroups struct {
	*cgroup.Tree
	client *cri.Client
	failed wake.Signal
	// durations is by operation. An Ensure that changes nothing counts as a creation, too.
	durations *prometheus.HistogramVec
}

// cgroupDurations registers a histogram with the kubelet's name and operations.
func cgroupDurations(reg prometheus.Registerer) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration in seconds for cgroup manager operations. Broken down by method.",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})
	reg.MustRegister(h)
	return h
}

// nodeMetrics registers the kubelet's metrics of the cgroup version (2 for the unified
// hierarchy), and of whether the runtime is too old. It returns the latter.
func nodeMetrics(reg prometheus.Registerer, v cgroup.Version) *prometheus.GaugeVec {
	version := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "cgroup version on the hosts."})
	version.Set(1)
	if v == cgroup.V2 {
		version.Set(2)
	}
	losing := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_cri_losing_support",
		Help: "1 if the runtime lacks a CRI call that the kubelet requires as of this version of Kubernetes.",
	}, []string{"version"})
	reg.MustRegister(version, losing)
	return losing
}

// needsRuntimeConfig is the first version whose kubelet does not fall back to the configured
// cgroup driver (cmd/kubelet/app).
const needsRuntimeConfig = "1.38.0"

// memoryReservations registers the kubelet's gauges of protected memory.
func memoryReservations(reg prometheus.Registerer, tree *cgroup.Tree) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_memory_qos_node_memory_min_bytes", Help: "Memory in bytes that Guaranteed pods request and memory.min protects (cgroup v2).",
	}, func() float64 {
		guaranteed, _ := tree.MemoryReservations()
		return float64(guaranteed)
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_memory_qos_node_memory_low_bytes", Help: "Memory in bytes that Burstable pods request and memory.low protects (cgroup v2).",
	}, func() float64 {
		_, burstable := tree.MemoryReservations()
		return float64(burstable)
	}))
}

// timed records how long an operation has taken since begin.
func (c podCgroups) timed(operation string, begin time.Time) {
	c.durations.WithLabelValues(operation).Observe(time.Since(begin).Seconds())
}

// RemoveCgroup reports a cgroup that cannot be removed. It may contain a process that the
// runtime has lost track of.
func (c podCgroups) RemoveCgroup(ctx context.Context, p *v1.Pod) error {
	defer c.timed("destroy", time.Now())
	err := c.Tree.Remove(ctx, p.UID)
	notifyOnError(c.failed, err)
	return err
}

// OrphanedPods returns the pods that have a cgroup but are not known. It compares UIDs in the form
// that the tree lists: systemd's names have underscores for dashes. Pods that another podd
// created on this runtime may have their cgroups in the same place.
func (c podCgroups) OrphanedPods(ctx context.Context, known []pod.UID) ([]pod.UID, error) {
	all, err := c.client.PodUIDs(ctx)
	if err != nil {
		return nil, err
	}
	known = append(slices.Clone(known), all...)
	uids, err := c.Tree.Pods()
	return slices.DeleteFunc(uids, func(listed pod.UID) bool {
		return slices.ContainsFunc(known, func(uid pod.UID) bool { return cgroup.Matches(listed, uid) })
	}), err
}

// EnsureCgroup creates the pod's cgroup before its sandbox.
func (c podCgroups) EnsureCgroup(ctx context.Context, p *v1.Pod) error {
	defer c.timed("create", time.Now())
	return c.Tree.Ensure(ctx, p)
}

// resizer is the part of the node that resizes need.
type resizer struct {
	podCgroups
	*admission.Gate
}

// RaiseCgroup and SetCgroup serve resizes. They run before and after the containers are
// resized.
func (c podCgroups) RaiseCgroup(ctx context.Context, sandboxID string, p *v1.Pod) error {
	return c.resize(ctx, sandboxID, p, c.Tree.Raise)
}

func (c podCgroups) SetCgroup(ctx context.Context, sandboxID string, p *v1.Pod) error {
	return c.resize(ctx, sandboxID, p, c.Tree.Update)
}

// resize announces the new limits to the runtime, then changes the pod's cgroup. If the runtime
// rejects the limits, the resize fails. If the cgroup cannot be changed, resize announces the
// old limits again, as the kubelet does.
func (c podCgroups) resize(ctx context.Context, sandboxID string, p *v1.Pod, set func(context.Context, *v1.Pod, func(from, to cgroup.Limits) error) error) error {
	defer c.timed("update", time.Now())
	announced := false
	var before cgroup.Limits
	err := set(ctx, p, func(from, to cgroup.Limits) error {
		before = from
		err := c.client.UpdateSandbox(ctx, sandboxID, p, sandboxResources(to))
		announced = err == nil
		return err
	})
	if err != nil && announced {
		if undo := c.client.UpdateSandbox(ctx, sandboxID, p, sandboxResources(before)); undo != nil {
			err = errors.Join(err, undo)
		}
	}
	return err
}

// sandboxResources converts the limits of a pod's cgroup to CRI's units.
func sandboxResources(l cgroup.Limits) pod.ContainerResources {
	return pod.ContainerResources{CPUShares: l.CPUShares, CPUQuota: l.CPUQuota, CPUPeriod: l.CPUPeriod, MemoryLimitInBytes: l.Memory}
}

// MemoryUsage returns the memory usage of a container in bytes, or that of the whole pod if
// containerID is empty.
func (c podCgroups) MemoryUsage(p *v1.Pod, containerID string) (int64, error) {
	return c.Tree.Usage(p, containerID)
}

// warnUnenforceableLimits warns about limits in the configuration that this kernel cannot
// enforce.
func (n *Node) warnUnenforceableLimits() {
	if n.cgroupFacts.Version != cgroup.V2 && (n.cfg.MemoryTieredReservation || n.cfg.MemoryThrottlingFactor > 0) {
		n.log.Warn("memoryReservationPolicy and memoryThrottlingFactor have no effect: they need cgroup v2", "cgroups", n.cgroupFacts.Version.String())
	}
	for controller, asked := range map[string]bool{"pids": n.cfg.PodPIDsLimit > 0, "cpu": true, "memory": true} {
		if _, ok := n.cgroupFacts.Controllers[controller]; asked && !ok {
			n.log.Warn("cgroup controller is missing or not delegated: pods are not limited by it", "controller", controller)
		}
	}
}
