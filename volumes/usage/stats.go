package usage

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

// unbounded is the limit of a walk that must not stop early.
const unbounded = 1 << 62

// NodeFS returns the statistics of the file system with the pods' directories.
func (m *Meter) NodeFS() (stats.FsStats, error) { return m.FS(m.cfg.Dirs.Pods()) }

// FS returns the statistics of the file system at path; it hangs if the file system does.
func (m *Meter) FS(path string) (stats.FsStats, error) {
	fs, err := m.statfs(path)
	if err != nil {
		return stats.FsStats{}, err
	}
	return fs.toFsStats(fs.used(), metav1.Now()), nil
}

// Pods returns the storage statistics of pods, in their order: their volumes, and the
// writable layers and logs of their running containers. A fresh reading (Config.StatsPeriod)
// is reused. It waits a second at most, even if a mount hangs: a reading that is not done by
// then has its previous value, if any, and a later call returns the new one.
func (m *Meter) Pods(ctx context.Context, pods []*v1.Pod) []stats.PodStats {
	return m.pods(ctx, pods, forStatistics)
}

// Measure is Pods for a caller that must rank pods: it measures what was not
// measured within the last ten seconds, and waits until that is done or ctx ends.
func (m *Meter) Measure(ctx context.Context, pods []*v1.Pod) []stats.PodStats {
	return m.pods(ctx, pods, forRanking)
}

func (m *Meter) pods(ctx context.Context, pods []*v1.Pod, why purpose) []stats.PodStats {
	var sources []source
	for _, p := range pods {
		sources = append(sources, m.sourcesOf(p)...)
	}
	known := m.readAll(ctx, sources, why)
	node, err := m.NodeFS()
	out := make([]stats.PodStats, 0, len(pods))
	for _, p := range pods {
		s := podStats(p, known)
		if err == nil {
			s.EphemeralStorage = m.ephemeralStorage(p, node, known)
		}
		out = append(out, s)
	}
	return out
}

// Claims returns the statistics of the pods' volumes with a claim, one for each claim, as
// Pods does.
func (m *Meter) Claims(ctx context.Context, pods []*v1.Pod) []stats.VolumeStats {
	var sources []source
	of := map[key]*stats.PVCReference{}
	seen := map[stats.PVCReference]bool{}
	for _, p := range pods {
		used := pod.UsedVolumes(p)
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			if ref := claimOf(p, v); ref != nil && used[v.Name] && !seen[*ref] && m.cfg.StatsPeriod >= 0 {
				seen[*ref] = true
				s := source{key{p.UID, volumeLabel(v)}, m.volumeContent(p, v).read}
				of[s.key] = ref
				sources = append(sources, s)
			}
		}
	}
	known := m.readAll(ctx, sources, forStatistics)
	var out []stats.VolumeStats
	for _, s := range sources {
		if f, ok := known[s.key]; ok {
			out = append(out, stats.VolumeStats{FsStats: f, PVCRef: of[s.key]})
		}
	}
	return out
}

// claimOf returns the claim of a volume, or nil.
func claimOf(p *v1.Pod, v *v1.Volume) *stats.PVCReference {
	switch {
	case v.PersistentVolumeClaim != nil:
		return &stats.PVCReference{Name: v.PersistentVolumeClaim.ClaimName, Namespace: p.Namespace}
	case v.Ephemeral != nil: // upstream's name for its claim
		return &stats.PVCReference{Name: p.Name + "-" + v.Name, Namespace: p.Namespace}
	}
	return nil
}

// sourcesOf returns the sources of a pod's statistics. As upstream, hostPaths, images and
// what no container uses have none.
func (m *Meter) sourcesOf(p *v1.Pod) []source {
	all := m.persistentContents(p)
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; !isEphemeral(v) && v.HostPath == nil && v.Image == nil {
			all = append(all, m.volumeContent(p, v))
		}
	}
	for _, c := range runningContainers(p) {
		all = append(all, m.containerContents(p, c)...)
	}
	used := pod.UsedVolumes(p)
	var sources []source
	for _, c := range all {
		if c.volume == "" || used[c.volume] && m.cfg.StatsPeriod >= 0 {
			sources = append(sources, source{key{p.UID, c.label}, c.read})
		}
	}
	return sources
}

// Runtime returns the result of measure, which says what the container runtime keeps on its
// disk, and the time of that measurement. A fresh reading (Config.StatsPeriod) is
// reused. Like Pods it waits a second at most, and measures one at a time; known is false
// until there is a reading. measure may hang.
func (m *Meter) Runtime(ctx context.Context, measure func(context.Context) (Amount, error)) (used Amount, at time.Time, known bool) {
	key := key{label: "what the container runtime keeps"}
	f, known := m.readAll(ctx, []source{{key, func(ctx context.Context) (f stats.FsStats, took time.Duration, err error) {
		began := time.Now()
		used, err := measure(ctx)
		f.UsedBytes, f.InodesUsed = number(used.Bytes), number(used.Inodes)
		return f, time.Since(began), err
	}}}, forStatistics)[key]
	if !known {
		return Amount{}, time.Time{}, false
	}
	return Amount{int64(*f.UsedBytes), int64(*f.InodesUsed)}, f.Time.Time, true
}

// readVolume measures a volume: through its driver, with statfs if it is a mount, or by
// its tree if it is a directory below the pod's.
func (m *Meter) readVolume(ctx context.Context, p *v1.Pod, v *v1.Volume) (stats.FsStats, time.Duration, error) {
	f, err := m.driverStats(ctx, p, v)
	if !errors.Is(err, pod.ErrNoStats) {
		return f, 0, err
	}
	path, err := m.cfg.Path(p, v.Name)
	if err != nil {
		return stats.FsStats{}, 0, err
	}
	if claimOf(p, v) == nil && !isMount(path) {
		return m.measureTree(ctx, path, func(ctx context.Context) (Amount, error) { return m.volumeSize(ctx, p, v, path, unbounded) })
	}
	began := time.Now()
	if size, device := deviceSize(path); device { // its usage is known to the pod only
		m.observeDuration("block", began)
		return fileSystem{capacity: size}.toFsStats(Amount{}, metav1.Time{}), 0, nil
	}
	fs, err := m.statfs(path)
	m.observeDuration("statfs", began)
	return fs.toFsStats(fs.used(), metav1.Time{}), 0, err
}

// driverStats returns what a volume's driver reports.
func (m *Meter) driverStats(ctx context.Context, p *v1.Pod, v *v1.Volume) (f stats.FsStats, err error) {
	driver := m.cfg.Driver(p, v.Name)
	leave, err := m.driverLimiter.acquire(ctx, driver)
	if err != nil {
		return f, err
	}
	began := time.Now()
	s, err := m.cfg.Stats(ctx, p, v.Name)
	leave()
	if driver != "" {
		m.observeDuration(driver, began)
	}
	if err != nil {
		return f, err
	}
	return stats.FsStats{
		AvailableBytes: number(s.AvailableBytes), CapacityBytes: number(s.CapacityBytes), UsedBytes: number(s.UsedBytes),
		InodesFree: number(s.InodesFree), Inodes: number(s.Inodes), InodesUsed: number(s.InodesUsed),
	}, nil
}

// measureTree measures a directory with one of the slots.
func (m *Meter) measureTree(ctx context.Context, dir string, takes func(context.Context) (Amount, error)) (f stats.FsStats, took time.Duration, err error) {
	took, err = m.withSlot(ctx, func() error {
		on, err := m.statfs(dir)
		if err != nil {
			return err
		}
		used, err := takes(ctx)
		f = on.toFsStats(used, metav1.Time{})
		return ignoreIncomplete(err)
	})
	return f, took, err
}

// read measures a container's layer for statistics.
func (l *layer) read(ctx context.Context) (f stats.FsStats, took time.Duration, err error) {
	m := l.meter
	took, err = m.withSlot(ctx, func() error {
		used, err := l.measure(ctx, unbounded)
		if err := ignoreIncomplete(err); err != nil {
			return err
		}
		on, err := m.statfs(l.info.FSPath)
		f = on.toFsStats(used, metav1.Time{})
		return err
	})
	return f, took, err
}

// SameFS says whether two paths are on one file system. It is false if either path is
// missing.
func SameFS(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}
