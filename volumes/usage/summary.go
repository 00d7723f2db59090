package usage

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

// podStats returns the statistics of a pod as far as they are known.
func podStats(p *v1.Pod, known map[key]stats.FsStats) stats.PodStats {
	out := stats.PodStats{
		PodRef:     stats.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		Containers: []stats.ContainerStats{},
	}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	of := func(label string) *stats.FsStats {
		if f, ok := known[key{p.UID, label}]; ok {
			return &f
		}
		return nil
	}
	for _, c := range runningContainers(p) {
		out.Containers = append(out.Containers, stats.ContainerStats{
			Name: c.Name, StartTime: c.State.Running.StartedAt, Rootfs: of(layerLabel(pod.RuntimeID(c.ContainerID))), Logs: of(logsLabel(c.Name)),
		})
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if f, ok := known[key{p.UID, volumeLabel(v)}]; ok {
			out.VolumeStats = append(out.VolumeStats, stats.VolumeStats{Name: v.Name, FsStats: f, PVCRef: claimOf(p, v)})
		}
	}
	return out
}

// ephemeralStorage returns the pod's usage of ephemeral storage, as counted for limits.
func (m *Meter) ephemeralStorage(p *v1.Pod, node stats.FsStats, known map[key]stats.FsStats) *stats.FsStats {
	all := m.persistentContents(p)
	for _, c := range runningContainers(p) {
		all = append(all, m.containerContents(p, c)...)
	}
	sum, newest := Amount{}, metav1.Time{}
	for _, c := range all {
		if fs, ok := known[key{p.UID, c.label}]; ok {
			sum = sum.plus(Amount{int64(*fs.UsedBytes), int64(*fs.InodesUsed)})
			if newest.Before(&fs.Time) {
				newest = fs.Time
			}
		}
	}
	node.UsedBytes, node.InodesUsed, node.Time = number(sum.Bytes), number(sum.Inodes), newest
	return &node
}
