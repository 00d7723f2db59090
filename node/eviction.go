package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/eviction"
	"podd/eviction/threshold"
	"podd/internal/pod"
	"podd/stats/kernel"
	"podd/volumes/usage"
)

// newEviction builds the manager that keeps the node from running out of memory, disk space and
// process IDs.
func (n *runtimeParts) newEviction() *eviction.Manager {
	c := &n.cfg.Eviction
	cfg := eviction.Config{
		Thresholds: c.Thresholds, PressureTransitionPeriod: c.Transition, MaxPodGracePeriod: c.MaxGrace,
		Node: evictionNode{n.newEvictionMeter(), n}, Pods: evictionPods{n}, Recorder: n.recorder, Changed: n.cluster.nodeStatusChanged, Log: n.log, Metrics: n.registry,
	}
	if c.Alarm {
		cfg.Alarm = memoryAlarm{n.kernel.NewAlarm(), n.cgroups.RootPath()}
	}
	return eviction.New(cfg)
}

// startEviction runs the eviction manager. Call it once pods are adopted.
func (n *runtimeParts) startEviction(ctx context.Context, g *errgroup.Group) {
	start(ctx, g, "eviction", n.eviction.Run)
}

// evictionNode implements eviction.Node.
type evictionNode struct {
	*eviction.Meter
	*runtimeParts
}

// newEvictionMeter builds the meter of the machine, and of the part that pods may use.
func (n *runtimeParts) newEvictionMeter() *eviction.Meter {
	return eviction.NewMeter(eviction.MeterConfig{
		Kernel: n.kernel, PodsCgroup: n.cgroups.RootPath(), FS: n.meter.FS, SameFS: usage.SameFS, PodsDir: n.dirs().WithDefaults().Pods(), ImagesDir: n.imagesDir, Log: n.log,
	})
}

// imagesDir asks the runtime where its images are. It returns "" if the runtime does not say.
func (n *runtimeParts) imagesDir(ctx context.Context) string {
	found, _, err := n.client.ImageFsInfo(ctx)
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0].Mountpoint
}

// Reclaim removes the containers of pods that have ended, and unused images. The containers'
// logs stay, and podd has its own record of the pods' statuses.
func (o evictionNode) Reclaim(ctx context.Context) (freed bool, err error) {
	containers, err := o.removeDeadContainers(ctx)
	images, imagesErr := o.housekeeping.collector.RemoveUnused(ctx)
	if containers+images > 0 {
		o.log.Info("removed what nobody needs: the disk is full", "containers", containers, "images", images)
	}
	return containers+images > 0, errors.Join(err, imagesErr)
}

// removeDeadContainers removes the dead containers of pods that have ended for good. Their
// statuses no longer depend on the containers.
func (o evictionNode) removeDeadContainers(ctx context.Context) (removed int, err error) {
	all, err := o.client.Summaries(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, s := range all {
		p := o.status.Pod(s.UID)
		if p == nil || !pod.IsPhaseTerminal(p.Status.Phase) || !o.agent.Released(s.UID) {
			continue // the end of its containers may not be recorded yet
		}
		for id, state := range s.Containers {
			if state != pod.ContainerExited {
				continue
			}
			if err := o.client.RemoveContainer(ctx, id); err != nil && !errors.Is(err, pod.ErrNotFound) {
				errs = append(errs, err)
				continue
			}
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// evictionPods implements eviction.Pods.
type evictionPods struct{ *runtimeParts }

func (e evictionPods) Active() []*v1.Pod { return e.activePods() }

// Usage measures memory and processes in the cgroups, and disk usage in the directory trees.
func (e evictionPods) Usage(ctx context.Context, pods []*v1.Pod, of v1.ResourceName) eviction.Usage {
	var all []stats.PodStats
	if of == v1.ResourceMemory || of == threshold.ResourcePIDs {
		s, err := e.stats.Summary(ctx, false)
		if err != nil {
			e.log.Warn("cannot measure what pods use: evicting by priority", "resource", of, "error", err)
			return nil
		}
		all = s.Pods
	} else {
		all = e.meter.Measure(ctx, pods)
	}
	used := make(eviction.Usage, len(all))
	for i := range all {
		used[pod.UID(all[i].PodRef.UID)] = &all[i]
	}
	return used
}

func (e evictionPods) Evict(uid pod.UID, why pod.Eviction) bool { return e.agent.Evict(uid, why) }

// releasedEvery is upstream's podCleanupPollFreq. Polling is needed because the last releases
// of an evicted pod change no status.
const releasedEvery = time.Second

// AwaitReleased waits for the pod's worker to release its volumes and its cgroup.
func (e evictionPods) AwaitReleased(ctx context.Context, uid pod.UID) {
	changes, stop := e.status.Changes()
	defer stop()
	tick := time.NewTicker(releasedEvery)
	defer tick.Stop()
	for !e.agent.Released(uid) {
		select {
		case <-changes:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pressures returns the Node's pressure conditions.
func (n *runtimeParts) pressures() (memory, disk, pids bool) {
	under := n.eviction.Conditions()
	return slices.Contains(under, v1.NodeMemoryPressure), slices.Contains(under, v1.NodeDiskPressure), slices.Contains(under, v1.NodePIDPressure)
}

// memoryAlarm implements eviction.Alarm. The kernel watches the memory of the machine and of
// all pods.
type memoryAlarm struct {
	*kernel.Alarm
	pods string // the cgroup of all pods
}

func (a memoryAlarm) Arm(signal threshold.Signal, available int64) error {
	if signal == threshold.AllocatableMemoryAvailable {
		return a.Alarm.Arm(a.pods, uint64(available))
	}
	return a.Alarm.Arm("/", uint64(available))
}
