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
const podFilesLabel = "the pod's files"

func terminationLogsLabel(container string) string {
	return "termination logs of container " + container
}
func volumeLabel(v *v1.Volume) string   { return "volume " + v.Name }
func logsLabel(container string) string { return "logs of container " + container }
func layerLabel(id string) string       { return "writable layer of container " + id }

// content is one thing that a pod has on the node's disks. Only the list of them
// (persistentContents and containerContents) says what counts as a pod's ephemeral storage:
// limits and statistics are both computed from it.
type content struct {
	label string // for readings and the log; unique in the pod
	// volume and container say what it belongs to; both empty for the pod itself.
	volume, container string
	layer             *layer // if it is one
	// measure measures the amount. It may stop once the amount exceeds enough bytes.
	measure func(ctx context.Context, enough int64) (Amount, error)
	// read is used for statistics.
	read func(ctx context.Context) (stats.FsStats, time.Duration, error)
}

// persistentContents are the contents that a pod has whether or not its containers run: the
// files that podd makes for it, those that podd makes for each container, which remain after
// the container has exited, and its volumes.
func (m *Meter) persistentContents(p *v1.Pod) []content {
	all := []content{m.filesContent(podFilesLabel, "", func() (Amount, error) {
		defer m.observeDuration("du", time.Now()) // upstream measures the hosts file so
		return filesSize(m.cfg.Dirs.Files(p.UID)...)
	})}
	for c := range pod.ContainerSpecs(&p.Spec) {
		all = append(all, m.filesContent(terminationLogsLabel(c.Name), c.Name, func() (Amount, error) {
			return filesIn(m.cfg.Dirs.Container(p.UID, c.Name))
		}))
	}
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; isEphemeral(v) {
			all = append(all, m.volumeContent(p, v))
		}
	}
	return all
}

// containerContents are the contents of a container that count while it runs.
func (m *Meter) containerContents(p *v1.Pod, c v1.ContainerStatus) []content {
	logs := filepath.Join(m.cfg.Dirs.Logs(p.Namespace, p.Name, p.UID), c.Name)
	l := &layer{meter: m, id: pod.RuntimeID(c.ContainerID)}
	return []content{
		{
			label: logsLabel(c.Name), container: c.Name,
			measure: func(ctx context.Context, enough int64) (Amount, error) { return m.walkSize(ctx, logs, enough) },
			read: func(ctx context.Context) (stats.FsStats, time.Duration, error) {
				return m.measureTree(ctx, logs, func(ctx context.Context) (Amount, error) { return m.walkSize(ctx, logs, unbounded) })
			},
		},
		{label: layerLabel(l.id), container: c.Name, layer: l, measure: l.measure, read: l.read},
	}
}

// filesContent are small files on the file system of the pods' directories, unless a container
// makes them large.
func (m *Meter) filesContent(label, container string, size func() (Amount, error)) content {
	return content{
		label: label, container: container,
		measure: func(context.Context, int64) (Amount, error) { return size() },
		read: func(context.Context) (stats.FsStats, time.Duration, error) {
			used, err := size()
			return stats.FsStats{UsedBytes: number(used.Bytes), InodesUsed: number(used.Inodes)}, 0, err
		},
	}
}

// volumeContent is a volume of any kind. Call its measure only for an ephemeral volume.
func (m *Meter) volumeContent(p *v1.Pod, v *v1.Volume) content {
	return content{
		label: volumeLabel(v), volume: v.Name,
		measure: func(ctx context.Context, enough int64) (Amount, error) {
			dir, err := m.cfg.Path(p, v.Name)
			if err != nil {
				return Amount{}, err
			}
			return m.volumeSize(ctx, p, v, dir, enough)
		},
		read: func(ctx context.Context) (stats.FsStats, time.Duration, error) { return m.readVolume(ctx, p, v) },
	}
}

// ignoreIncomplete accepts an incomplete count for statistics, which have no better one.
func ignoreIncomplete(err error) error {
	if errors.Is(err, errIncomplete) {
		return nil
	}
	return err
}
