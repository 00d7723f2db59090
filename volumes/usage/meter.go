package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/slots"
	"podd/podfs"
)

const (
	// pauseFactor: a measurement that took t is not repeated within pauseFactor·t.
	pauseFactor = 50
	// parallelMeasurements bounds the measurements in progress. One that takes longer than
	// longMeasurement gives its slot back, so that it does not delay others.
	parallelMeasurements = 2
	longMeasurement      = time.Second
)

// Layers says where the writable layers of containers are.
type Layers interface {
	// Layer returns the layer of the container with this ID. It may block on a call of
	// the runtime. The error for an unknown container is pod.ErrNotFound.
	Layer(ctx context.Context, id string) (Layer, error)
}

// Layer is a container's writable layer.
type Layer struct {
	// Dir is the directory on the host with the files written, without the image's;
	// empty if only the runtime can measure the layer. It never changes.
	Dir string
	// Used is the usage that the runtime reports, if Dir is empty.
	Used Amount
	// FSPath is a path on the layer's file system.
	FSPath string
}

// Events records events of volumes that their drivers report as abnormal.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Config says where pods' storage is. All fields are required.
type Config struct {
	// Path returns where the content of a volume is on the host (volumes.Mounter.Path).
	Path func(p *v1.Pod, volume string) (string, error)
	// Stats returns the usage that a volume's driver reports; pod.ErrNoStats for a
	// volume that must be measured here. It may block (volumes.Mounter.Stats).
	Stats func(ctx context.Context, p *v1.Pod, volume string) (pod.VolumeStats, error)
	// Driver names the CSI driver of a volume, "" for none (volumes.Mounter.DriverOf).
	Driver func(p *v1.Pod, volume string) string
	// Dirs has the pods' directories and logs.
	Dirs podfs.Dirs
	// Status returns a pod with its newest status, or nil. It must not block.
	Status func(pod.UID) *v1.Pod
	Layers Layers
	Events Events
	// StatsPeriod is how long a reading for statistics is valid, upstream's
	// volumeStatsAggPeriod; with jitter up to twice as long, so that not all expire at
	// once. If it is negative, volumes have no statistics.
	StatsPeriod time.Duration
	// QuotaUsage returns the project quota's usage, in bytes and inodes, of an emptyDir on
	// disk of a pod in a user namespace (quota.Projects.Used); known is false if the tree
	// must be walked. It may be nil.
	QuotaUsage func(dir string) (bytes, inodes int64, known bool)
	Log        *slog.Logger
}

// Meter measures pods' storage. All methods are safe for concurrent use.
type Meter struct {
	cfg         Config
	size        func(ctx context.Context, dir string, enough int64) (Amount, error)
	statfs      func(path string) (fileSystem, error)
	slots       *slots.Slots
	statsPeriod time.Duration // positive
	// measured counts measurements of directories, by method.
	measured      struct{ walked, counted atomic.Int64 }
	driverLimiter driverLimiter
	// durations is the kubelet's metric of that name.
	durations *prometheus.HistogramVec

	mu       sync.Mutex // guards readings
	readings map[key]*reading
}

// New returns a Meter. It starts nothing.
func New(c Config) *Meter {
	m := &Meter{
		cfg: c, size: treeSize, statfs: statfs, slots: slots.New(parallelMeasurements, slots.Unlimited, longMeasurement), statsPeriod: c.StatsPeriod, durations: newDurations(),
		readings: map[key]*reading{},
	}
	if m.statsPeriod <= 0 {
		m.statsPeriod = time.Minute // for layers, logs and hosts files
	}
	return m
}

// volumeSize returns the usage of a volume that is a directory below the pod's, from the
// project quota if that is trustworthy.
func (m *Meter) volumeSize(ctx context.Context, p *v1.Pod, v *v1.Volume, dir string, enough int64) (Amount, error) {
	if canUseQuota(p, v) && m.cfg.QuotaUsage != nil {
		began := time.Now()
		if bytes, inodes, known := m.cfg.QuotaUsage(dir); known {
			m.observeDuration("fsquota", began)
			m.measured.counted.Add(1)
			return Amount{bytes, inodes}, nil
		}
	}
	m.measured.walked.Add(1)
	return m.walkSize(ctx, dir, enough)
}

// walkSize returns the size of a directory that the kubelet, too, would walk to measure it.
func (m *Meter) walkSize(ctx context.Context, dir string, enough int64) (Amount, error) {
	defer m.observeDuration("du", time.Now())
	return m.size(ctx, dir, enough)
}

// canUseQuota says whether the project quota of a volume is trustworthy. As upstream,
// that requires a user namespace: outside of one, the owner of a file may take it out of
// the project.
func canUseQuota(p *v1.Pod, v *v1.Volume) bool {
	return p.Spec.HostUsers != nil && !*p.Spec.HostUsers && v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// withSlot calls measure with one of the slots; took does not include the wait for it.
func (m *Meter) withSlot(ctx context.Context, measure func() error) (took time.Duration, err error) {
	leave, err := m.slots.Acquire(ctx, slots.Rest{})
	if err != nil {
		return 0, err
	}
	defer leave()
	began := time.Now()
	err = measure()
	return time.Since(began), err
}

// layer measures the writable layer of one container.
type layer struct {
	meter *Meter
	id    string
	info  Layer
	// onImageFS: it is not on the file system of the pods' directories, but on what the
	// kubelet calls a dedicated image file system.
	onImageFS bool
}

func (l *layer) measure(ctx context.Context, enough int64) (Amount, error) {
	if l.info.Dir == "" {
		found, err := l.meter.cfg.Layers.Layer(ctx, l.id)
		if errors.Is(err, pod.ErrNotFound) {
			return Amount{}, nil // it was removed
		}
		if err != nil {
			return Amount{}, err
		}
		if l.info.FSPath == "" {
			l.onImageFS = !sameDevice(found.FSPath, l.meter.cfg.Dirs.Pods())
		}
		l.info = found
	}
	if l.info.Dir == "" {
		return l.info.Used, nil
	}
	return l.meter.size(ctx, l.info.Dir, enough)
}

// runningContainers returns the statuses of the pod's running containers. As in the
// kubelet, only their layers and logs count.
func runningContainers(p *v1.Pod) []v1.ContainerStatus {
	if p == nil {
		return nil
	}
	var all []v1.ContainerStatus
	for c := range pod.ContainerStatuses(&p.Status) {
		if c.State.Running != nil {
			all = append(all, *c)
		}
	}
	return all
}

// isEphemeral says whether a volume is part of the pod's ephemeral storage
// (IsLocalEphemeralVolume in upstream's pkg/volume/util).
func isEphemeral(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}
