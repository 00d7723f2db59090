package node

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/agent"
	"podd/bundle"
	"podd/cri"
	"podd/internal/pluginconn"
	"podd/internal/pod"
	"podd/stats"
	"podd/volumes/usage"
)

// layers locates containers' writable layers. For containerd it finds the directory, since
// containerd's statistics may be as old as stats_collect_period (bundle.SnapshotUsage). Other
// runtimes report statistics.
type layers struct {
	client     *cri.Client
	containerd bool
}

// layerTimeout bounds the calls for one container.
const layerTimeout = 5 * time.Second

func (l layers) Layer(ctx context.Context, id string) (usage.Layer, error) {
	ctx, cancel := context.WithTimeout(ctx, layerTimeout)
	defer cancel()
	if l.containerd {
		if dir := l.dir(ctx, id); dir != "" {
			return usage.Layer{Dir: dir, FSPath: dir}, nil
		}
	}
	u, err := l.client.LayerUsage(ctx, id)
	return usage.Layer{Used: usage.Amount{Bytes: u.Bytes, Inodes: u.Inodes}, FSPath: u.Mountpoint}, err
}

// dir returns a layer's directory; empty if containerd does not report it.
func (l layers) dir(ctx context.Context, id string) string {
	conn, err := dialContainerd(l.client)
	if err != nil {
		return ""
	}
	defer conn.Close()
	dir, err := bundle.Containerd{Conn: conn}.LayerDir(ctx, id)
	if err != nil {
		return ""
	}
	return dir
}

// dialContainerd connects to containerd's own API, which is on the socket of its CRI.
func dialContainerd(client *cri.Client) (*grpc.ClientConn, error) {
	return pluginconn.Dial(client.Endpoint(), pod.MaxRuntimeMessage)
}

// limits returns the watcher of pods' storage limits, or nil if the configuration disables it.
func (n *runtimeParts) limits() agent.Limits {
	if !n.cfg.LimitStorage {
		return nil
	}
	return n.meter
}

// newStats returns the collector for /stats/summary and the metrics of pods.
func (n *runtimeParts) newStats() *stats.Collector {
	sandboxImage := ""
	if n.network != nil { // unknown for another runtime
		sandboxImage = n.options.SandboxImage
	}
	return stats.New(stats.Config{
		Node: n.cfg.NodeName, Kernel: n.kernel,
		RootCgroup: n.cgroups.RootPath(), Groups: n.listPodCgroups, SystemCgroup: n.cfg.SystemCgroup,
		Identify: func(ctx context.Context) ([]pod.Identity, error) { return n.client.Identities(ctx, sandboxImage) },
		Pods:     n.activePods, Storage: n.meter, Images: n.runtimeDisks, Disk: n.dirs().WithDefaults().Pods(), RuntimePID: n.runtimePID, PastOOMKills: n.oom.PastOOMKills,
		Version: n.options.Version.Version, Log: n.log,
	})
}

// runtimeDisks measures the file systems of images and of containers' writable layers. They are
// the same file system unless the runtime tells them apart.
func (n *runtimeParts) runtimeDisks(ctx context.Context) (*statsapi.RuntimeStats, error) {
	images, containers, err := n.imageFS(ctx)
	if err != nil {
		return nil, err
	}
	if len(containers) == 0 {
		containers = images
	}
	return &statsapi.RuntimeStats{ImageFs: n.disk(images[0]), ContainerFs: n.disk(containers[0])}, nil
}

// imageFS asks the runtime for the usage of images and writable layers. If containerd's answer
// is missing or old, podd counts the usage of the snapshots.
func (n *runtimeParts) imageFS(ctx context.Context) (images, containers []cri.FsUsage, err error) {
	images, containers, err = n.client.ImageFsInfo(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(images) == 0 {
		return nil, nil, errNoImageDisk
	}
	u := &images[0]
	snapshotter, ofContainerd := snapshotterOf(u.Mountpoint)
	if !ofContainerd || !n.facts.importsArchives() || u.Used > 0 && time.Since(u.At) < max(n.cfg.VolumeStatsAggPeriod, imageFSAge) {
		return images, containers, nil
	}
	if used, at, known := n.meter.Runtime(ctx, n.snapshotUsage.measureFunc(snapshotter)); known && (u.Used == 0 || at.After(u.At)) {
		u.Used, u.Inodes, u.At = uint64(used.Bytes), uint64(used.Inodes), at
	}
	return images, containers, nil
}

// imageFSAge is the maximum age of the runtime's own statistics. A containerd that collects
// them has newer ones.
const imageFSAge = time.Minute

// snapshotterOf returns the containerd snapshotter that has its directory at mountpoint.
func snapshotterOf(mountpoint string) (name string, ok bool) {
	return strings.CutPrefix(filepath.Base(mountpoint), "io.containerd.snapshotter.v1.")
}

// snapshotUsage counts the usage of snapshots. The meter makes one call at a time.
type snapshotUsage struct {
	client *cri.Client
	bundle.SnapshotUsage
}

// snapshotUsageTimeout bounds one count: containerd reads directories for it.
const snapshotUsageTimeout = time.Minute

func (u *snapshotUsage) measureFunc(snapshotter string) func(context.Context) (usage.Amount, error) {
	return func(ctx context.Context) (usage.Amount, error) {
		ctx, cancel := context.WithTimeout(ctx, snapshotUsageTimeout)
		defer cancel()
		conn, err := dialContainerd(u.client)
		if err != nil {
			return usage.Amount{}, err
		}
		defer conn.Close()
		u.Snapshotter = snapshotter
		used, err := u.Measure(ctx, bundle.Containerd{Conn: conn})
		return usage.Amount(used), err
	}
}

// disk combines podd's view of a file system with the runtime's usage of its own part.
func (n *runtimeParts) disk(u cri.FsUsage) *statsapi.FsStats {
	out, err := n.meter.FS(u.Mountpoint)
	if err != nil { // not in podd's mount namespace
		out = statsapi.FsStats{}
	}
	out.Time, out.UsedBytes, out.InodesUsed = metav1.Now(), nil, nil
	if u.Used > 0 { // 0 until containerd has measured; its time is that of the query
		out.Time, out.UsedBytes, out.InodesUsed = metav1.NewTime(u.At), &u.Used, &u.Inodes
	}
	return &out
}

// listPodCgroups lists the cgroups of pods.
func (n *runtimeParts) listPodCgroups() []stats.Group {
	listed := n.cgroups.Groups()
	all := make([]stats.Group, len(listed))
	for i, g := range listed {
		all[i] = stats.Group(g)
	}
	return all
}

// runtimePID returns the process that listens on the runtime's socket, or 0 if unknown.
func (n *Node) runtimePID() int {
	pid, err := bundle.ListenerPID(strings.TrimPrefix(n.conn.Endpoint(), "unix://"))
	if err != nil {
		return 0
	}
	return pid
}

// Summary implements server.Runtime.
func (a serverRuntime) Summary(ctx context.Context, storage bool) (any, error) {
	return a.stats.Summary(ctx, storage)
}

// ResourceMetrics implements server.Runtime.
func (a serverRuntime) ResourceMetrics(ctx context.Context, w io.Writer) error {
	return a.stats.Resource(ctx, w)
}

// CadvisorMetrics implements server.Runtime.
func (a serverRuntime) CadvisorMetrics(ctx context.Context, w io.Writer) error {
	return a.stats.Cadvisor(ctx, w)
}

// activePods returns the pods that have not completed.
func (n *Node) activePods() []*v1.Pod {
	var all []*v1.Pod
	for _, p := range n.status.Pods() {
		if !pod.IsPhaseTerminal(p.Status.Phase) {
			all = append(all, p)
		}
	}
	return all
}
