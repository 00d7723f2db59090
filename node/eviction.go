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
)

// newEviction builds what keeps the node from running out of memory, disks and processes.
func (n *parts) newEviction() *eviction.Manager {
	c := &n.cfg.Eviction
	cfg := eviction.Config{
		Thresholds: c.Thresholds, Transition: c.Transition, MaxGrace: c.MaxGrace,
		Node: &pressured{parts: n, failed: map[string]string{}}, Pods: evictable{n}, Recorder: n.recorder, Changed: n.cluster.changed, Log: n.log, Metrics: n.registry,
	}
	if c.Alarm {
		cfg.Alarm = memoryAlarm{n.kernel.NewAlarm(), n.cgroups.RootPath()}
	}
	return eviction.New(cfg)
}

// startEviction runs it, once pods are adopted.
func (n *parts) startEviction(ctx context.Context, g *errgroup.Group) {
	start(ctx, g, "eviction", n.eviction.Run)
}

// pressured implements eviction.Node.
type pressured struct {
	*parts
	images string            // the images' file system; "" until the runtime has said
	failed map[string]string // what was logged of what could not be measured
}

// Observe measures. It belongs to the Manager's goroutine.
func (o *pressured) Observe(ctx context.Context, signals []threshold.Signal) eviction.Observations {
	out := eviction.Observations{}
	wants := func(names ...threshold.Signal) bool {
		return slices.ContainsFunc(signals, func(s threshold.Signal) bool { return slices.Contains(names, s) })
	}
	if wants(threshold.MemoryAvailable) {
		m, err := o.kernel.Memory("/")
		o.note("memory", err, func(at time.Time) { out[threshold.MemoryAvailable] = memoryLeft(m, at) })
	}
	if wants(threshold.AllocatableMemoryAvailable) {
		m, err := o.kernel.Memory(o.cgroups.RootPath())
		if errors.Is(err, kernel.ErrGone) || err == nil && m.Limit >= kernel.Unlimited {
			err = nil // there is no pod yet, or no limit
		} else {
			o.note("memory of pods", err, func(at time.Time) { out[threshold.AllocatableMemoryAvailable] = memoryLeft(m, at) })
		}
	}
	if wants(threshold.PIDAvailable) {
		running, most := o.kernel.Tasks()
		if running >= 0 && most > 0 {
			out[threshold.PIDAvailable] = eviction.Observation{Available: most - running, Capacity: most, Time: time.Now()}
		}
	}
	if wants(threshold.NodeFSAvailable, threshold.NodeFSInodesFree) {
		fs, err := o.meter.NodeFS()
		o.note("nodefs", err, func(at time.Time) {
			fileSystem(out, threshold.NodeFSAvailable, threshold.NodeFSInodesFree, &fs, at)
		})
	}
	if wants(threshold.ImageFSAvailable, threshold.ImageFSInodesFree) && o.findImages(ctx) {
		fs, err := o.meter.FS(o.images)
		if err != nil {
			o.images = "" // another disk may be mounted
		}
		o.note("imagefs", err, func(at time.Time) {
			fileSystem(out, threshold.ImageFSAvailable, threshold.ImageFSInodesFree, &fs, at)
		})
	}
	return out
}

// note logs an error once, or takes what was measured.
func (o *pressured) note(what string, err error, take func(at time.Time)) {
	if err == nil {
		delete(o.failed, what)
		take(time.Now())
		return
	}
	if o.failed[what] != err.Error() {
		o.failed[what] = err.Error()
		o.log.Warn("cannot measure what the node has left: no pod is evicted for it", "what", what, "error", err)
	}
}

// memoryLeft counts as the kubelet does: what is not in the working set.
func memoryLeft(m kernel.Memory, at time.Time) eviction.Observation {
	return eviction.Observation{Available: int64(m.Limit - min(m.Limit, m.WorkingSet)), Capacity: int64(m.Limit), Time: at}
}

// fileSystem takes both signals of a file system. One without inodes of its own (btrfs) has
// none.
func fileSystem(out eviction.Observations, space, inodes threshold.Signal, fs *stats.FsStats, at time.Time) {
	out[space] = eviction.Observation{Available: int64(*fs.AvailableBytes), Capacity: int64(*fs.CapacityBytes), Time: at}
	if *fs.Inodes > 0 {
		out[inodes] = eviction.Observation{Available: int64(*fs.InodesFree), Capacity: int64(*fs.Inodes), Time: at}
	}
}

// findImages asks the runtime where its images are, until it has said so.
func (o *pressured) findImages(ctx context.Context) bool {
	if o.images == "" {
		found, _, err := o.client.ImageFsInfo(ctx)
		if err == nil && len(found) > 0 {
			o.images = found[0].Mountpoint
		}
	}
	return o.images != ""
}

// SeparateImages compares the file systems of images and pods.
func (o *pressured) SeparateImages(ctx context.Context) bool {
	return o.findImages(ctx) && !sameDisk(o.images, o.dirs().WithDefaults().Pods())
}

// Reclaim removes the containers of pods that have ended (their logs stay, and their
// statuses are podd's own record), and the images that nobody uses.
func (o *pressured) Reclaim(ctx context.Context) (freed bool, err error) {
	containers, err := o.removeEnded(ctx)
	images, imagesErr := o.keep.collector.RemoveUnused(ctx)
	if containers+images > 0 {
		o.log.Info("removed what nobody needs: the disk is full", "containers", containers, "images", images)
	}
	return containers+images > 0, errors.Join(err, imagesErr)
}

// removeEnded removes the dead containers of pods that have ended for good, whose statuses no
// longer depend on them.
func (o *pressured) removeEnded(ctx context.Context) (removed int, err error) {
	all, err := o.client.Summaries(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, s := range all {
		p := o.status.Pod(s.UID)
		if p == nil || !pod.Over(p.Status.Phase) || !o.agent.Released(s.UID) {
			continue // how its containers ended may not be recorded yet
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

// evictable implements eviction.Pods.
type evictable struct{ *parts }

func (e evictable) Active() []*v1.Pod { return e.active() }

// Usage measures memory and processes in the cgroups, disks by their trees.
func (e evictable) Usage(ctx context.Context, pods []*v1.Pod, of v1.ResourceName) eviction.Usage {
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

func (e evictable) Evict(uid pod.UID, why pod.Eviction) bool { return e.agent.Evict(uid, why) }

// releasedEvery is upstream's podCleanupPollFreq: what an evicted pod releases at the very
// end changes no status.
const releasedEvery = time.Second

// Released waits for the pod's worker to release its volumes and its cgroup.
func (e evictable) Released(ctx context.Context, uid pod.UID) {
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

// pressures are the Node's conditions.
func (n *parts) pressures() (memory, disk, pids bool) {
	under := n.eviction.Conditions()
	return slices.Contains(under, v1.NodeMemoryPressure), slices.Contains(under, v1.NodeDiskPressure), slices.Contains(under, v1.NodePIDPressure)
}

// memoryAlarm implements eviction.Alarm: the kernel watches the machine's memory and that of
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
