package usage

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

// The names of contents, in readings and in the log.
const filesOf = "the pod's files"

func terminationLogsOf(container string) string { return "termination logs of container " + container }
func volumeOf(v *v1.Volume) string              { return "volume " + v.Name }
func logsOf(container string) string            { return "logs of container " + container }
func layerOf(id string) string                  { return "writable layer of container " + id }

// content is one thing that a pod has on the node's disks. Only the list of them (lasting
// and ofRunning) says what counts as a pod's ephemeral storage: limits and statistics are
// both computed from it.
type content struct {
	what string // for readings and the log; unique in the pod
	// volume and container say what it belongs to; both empty for the pod itself.
	volume, container string
	layer             *layer // if it is one
	// used measures the amount. It may stop once the amount exceeds enough bytes.
	used func(ctx context.Context, enough int64) (Amount, error)
	// read is used for statistics.
	read func(ctx context.Context) (figures, time.Duration, error)
}

// lasting are the contents that a pod has whether or not its containers run: the files that
// podd makes for it, those that podd makes for each container, which remain after the
// container has exited, and its volumes.
func (m *Meter) lasting(p *v1.Pod) []content {
	all := []content{m.files(filesOf, "", func() (Amount, error) {
		defer m.took("du", time.Now()) // upstream measures the hosts file so
		return filesSize(m.cfg.Dirs.Files(p.UID)...)
	})}
	for c := range pod.ContainerSpecs(&p.Spec) {
		all = append(all, m.files(terminationLogsOf(c.Name), c.Name, func() (Amount, error) {
			return filesIn(m.cfg.Dirs.Container(p.UID, c.Name))
		}))
	}
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; ephemeral(v) {
			all = append(all, m.volume(p, v))
		}
	}
	return all
}

// ofRunning are the contents of a container that count while it runs.
func (m *Meter) ofRunning(p *v1.Pod, c v1.ContainerStatus) []content {
	logs := filepath.Join(m.cfg.Dirs.Logs(p.Namespace, p.Name, p.UID), c.Name)
	l := &layer{meter: m, id: pod.RuntimeID(c.ContainerID)}
	return []content{
		{
			what: logsOf(c.Name), container: c.Name,
			used: func(ctx context.Context, enough int64) (Amount, error) { return m.walk(ctx, logs, enough) },
			read: func(ctx context.Context) (figures, time.Duration, error) {
				return m.tree(ctx, logs, func(ctx context.Context) (Amount, error) { return m.walk(ctx, logs, unbounded) })
			},
		},
		{what: layerOf(l.id), container: c.Name, layer: l, used: l.used, read: l.read},
	}
}

// files are small files on the file system of the pods' directories, unless a container
// makes them large.
func (m *Meter) files(what, container string, size func() (Amount, error)) content {
	return content{
		what: what, container: container,
		used: func(context.Context, int64) (Amount, error) { return size() },
		read: func(context.Context) (figures, time.Duration, error) {
			used, err := size()
			return figures{FsStats: stats.FsStats{UsedBytes: number(used.Bytes), InodesUsed: number(used.Inodes)}}, 0, err
		},
	}
}

// volume is a volume of any kind. Call its used only for an ephemeral volume.
func (m *Meter) volume(p *v1.Pod, v *v1.Volume) content {
	return content{
		what: volumeOf(v), volume: v.Name,
		used: func(ctx context.Context, enough int64) (Amount, error) {
			dir, err := m.cfg.Path(p, v.Name)
			if err != nil {
				return Amount{}, err
			}
			return m.directory(ctx, p, v, dir, enough)
		},
		read: func(ctx context.Context) (figures, time.Duration, error) { return m.readVolume(ctx, p, v) },
	}
}

// atLeast accepts a cut count for statistics, which have no better one.
func atLeast(err error) error {
	if errors.Is(err, errCut) {
		return nil
	}
	return err
}
