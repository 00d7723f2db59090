package usage

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podfs"
)

const (
	// share: a look that took t is not repeated before share·t.
	share = 50
	// places is how many looks go on at a time; one that takes longer than longLook
	// does not count, for it must not keep others waiting.
	places   = 2
	longLook = time.Second
)

// Layers says where the writable layers of containers are.
type Layers interface {
	// Layer is that of the container with this ID. It may call the runtime, and
	// blocks no longer than that does. An unknown container is pod.ErrNotFound.
	Layer(ctx context.Context, id string) (Layer, error)
}

// Layer is what a container writes outside of its volumes.
type Layer struct {
	// Dir is a directory of the host with what was written, and nothing of the image;
	// empty if only the runtime can measure it. It never changes.
	Dir string
	// Used is the runtime's own number, without a Dir.
	Used Amount
	// On is a path on the file system that has it.
	On string
}

// Events tells of volumes whose drivers say that something is wrong with them.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Config says where pods' storage is. All fields are required.
type Config struct {
	// Path is where the content of a volume is on the host (volumes.Mounter.Path).
	Path func(p *v1.Pod, volume string) (string, error)
	// Stats are what a volume's driver says of it; pod.ErrNoStats for a volume that is
	// to be measured here. It may block (volumes.Mounter.Stats).
	Stats func(ctx context.Context, p *v1.Pod, volume string) (pod.VolumeStats, error)
	// Driver names the CSI driver of a volume, "" for none (volumes.Mounter.DriverOf).
	Driver func(p *v1.Pod, volume string) string
	// Dirs has the pods' directories and logs.
	Dirs podfs.Dirs
	// Status is a pod with its newest status; nil for none. It must not block.
	Status func(pod.UID) *v1.Pod
	Layers Layers
	Events Events
	// Fresh is how long a reading for statistics serves, upstream's
	// volumeStatsAggPeriod; up to twice as long, so that not all are due at once. If it
	// is negative, volumes have no statistics.
	Fresh time.Duration
	// Counted is what the file system itself counts for an emptyDir on disk of a pod in
	// a user namespace (quota.Projects.Used), in bytes and inodes; known is false where
	// the tree is to be walked. Nil knows nothing.
	Counted func(dir string) (bytes, inodes int64, known bool)
	Log     *slog.Logger
}

// Meter measures pods' storage. All methods are safe for concurrent use.
type Meter struct {
	cfg    Config
	size   func(ctx context.Context, dir string, enough int64) (Amount, error)
	statfs func(path string) (fileSystem, error)
	places chan struct{}
	fresh  time.Duration // positive
	looks  struct{ walked, counted atomic.Int64 }
	asking asking
	// durations are of the kubelet's name.
	durations *prometheus.HistogramVec

	mu       sync.Mutex // guards readings
	readings map[key]*reading
}

// New returns a Meter. It starts nothing.
func New(c Config) *Meter {
	m := &Meter{
		cfg: c, size: treeSize, statfs: statfs, places: make(chan struct{}, places), fresh: c.Fresh, durations: newDurations(),
		readings: map[key]*reading{},
	}
	if m.fresh <= 0 {
		m.fresh = time.Minute // of what is no volume
	}
	return m
}

// directory is what a volume takes that is a directory of the pod's, by the file
// system's own count where that is to be believed.
func (m *Meter) directory(ctx context.Context, p *v1.Pod, v *v1.Volume, dir string, enough int64) (Amount, error) {
	if mayBeCounted(p, v) && m.cfg.Counted != nil {
		began := time.Now()
		if bytes, inodes, known := m.cfg.Counted(dir); known {
			m.took("fsquota", began)
			m.looks.counted.Add(1)
			return Amount{bytes, inodes}, nil
		}
	}
	m.looks.walked.Add(1)
	return m.walk(ctx, dir, enough)
}

// walk is the size of a directory that the kubelet, too, measures by walking it.
func (m *Meter) walk(ctx context.Context, dir string, enough int64) (Amount, error) {
	defer m.took("du", time.Now())
	return m.size(ctx, dir, enough)
}

// hosts is what a pod's hosts file takes.
func (m *Meter) hosts(uid pod.UID) (Amount, error) {
	defer m.took("du", time.Now())
	return filesSize(m.cfg.Dirs.Hosts(uid))
}

// mayBeCounted is upstream's rule: outside of a user namespace whoever owns a file may
// take it out of the count.
func mayBeCounted(p *v1.Pod, v *v1.Volume) bool {
	return p.Spec.HostUsers != nil && !*p.Spec.HostUsers && v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// inTurn has one of the places while it measures; took is without waiting for that.
func (m *Meter) inTurn(ctx context.Context, measure func() error) (took time.Duration, err error) {
	select {
	case m.places <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-m.places })
	defer leave()
	defer time.AfterFunc(longLook, leave).Stop()
	began := time.Now()
	err = measure()
	return time.Since(began), err
}

// layer is the writable layer of one container, once it is known where it is.
type layer struct {
	meter *Meter
	id    string
	known Layer
	// separate: it is not on the file system of the pods' directories, the kubelet's
	// dedicated image file system.
	separate bool
}

func (l *layer) used(ctx context.Context, enough int64) (Amount, error) {
	if l.known.Dir == "" {
		found, err := l.meter.cfg.Layers.Layer(ctx, l.id)
		if errors.Is(err, pod.ErrNotFound) {
			return Amount{}, nil // it was removed
		}
		if err != nil {
			return Amount{}, err
		}
		if l.known.On == "" {
			l.separate = !sameDevice(found.On, l.meter.cfg.Dirs.Pods())
		}
		l.known = found
	}
	if l.known.Dir == "" {
		return l.known.Used, nil
	}
	return l.meter.size(ctx, l.known.Dir, enough)
}

// running are the statuses of a pod's containers that run, the only ones whose layers
// and logs the kubelet counts.
func running(p *v1.Pod) []v1.ContainerStatus {
	if p == nil {
		return nil
	}
	var all []v1.ContainerStatus
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				all = append(all, list[i])
			}
		}
	}
	return all
}

// containerID is the runtime's: the status has it as runtime://id.
func containerID(c v1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}

// ephemeral says that a volume is part of a pod's ephemeral storage
// (IsLocalEphemeralVolume in upstream's pkg/volume/util).
func ephemeral(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}
