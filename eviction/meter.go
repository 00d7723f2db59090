package eviction

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/eviction/threshold"
	"podd/internal/logonce"
	"podd/stats/kernel"
)

// Kernel is what a Meter reads (kernel.Reader).
type Kernel interface {
	Memory(cgroup string) (kernel.Memory, error)
	Tasks() (running, most int64)
}

// MeterConfig configures a Meter. All fields are required.
type MeterConfig struct {
	Kernel     Kernel
	PodsCgroup string // of all pods
	// FS measures the file system at a path; it hangs if the file system does.
	FS      func(path string) (stats.FsStats, error)
	PodsDir string // has the pods' volumes
	// SameFS says whether two paths are on one file system.
	SameFS func(a, b string) bool
	// ImagesDir returns where the runtime has its images, "" while it does not say.
	ImagesDir func(ctx context.Context) string
	Log       *slog.Logger
}

// Meter measures what the node has left. It belongs to the Manager's goroutine.
type Meter struct {
	cfg       MeterConfig
	imagesDir string // the images' file system; "" until the runtime has said
	failures  map[string]logonce.Failure
}

// NewMeter measures nothing yet.
func NewMeter(cfg MeterConfig) *Meter {
	return &Meter{cfg: cfg, failures: map[string]logonce.Failure{}}
}

// measurements are the ways to measure signals: each with the signals that it measures at once, and
// its name in the log.
var measurements = []struct {
	name    string
	signals []threshold.Signal
	measure func(m *Meter, ctx context.Context, out Observations, signals []threshold.Signal) error
}{
	{"memory", []threshold.Signal{threshold.MemoryAvailable}, (*Meter).memory},
	{"memory of pods", []threshold.Signal{threshold.AllocatableMemoryAvailable}, (*Meter).podsMemory},
	{"processes", []threshold.Signal{threshold.PIDAvailable}, (*Meter).tasks},
	{"nodefs", []threshold.Signal{threshold.NodeFSAvailable, threshold.NodeFSInodesFree}, (*Meter).nodeFS},
	{"imagefs", []threshold.Signal{threshold.ImageFSAvailable, threshold.ImageFSInodesFree}, (*Meter).imageFS},
}

// Observe measures some signals. Those that cannot be measured are missing; the reason is
// logged once.
func (m *Meter) Observe(ctx context.Context, signals []threshold.Signal) Observations {
	out := Observations{}
	for _, by := range measurements {
		if !slices.ContainsFunc(signals, func(s threshold.Signal) bool { return slices.Contains(by.signals, s) }) {
			continue
		}
		err := by.measure(m, ctx, out, by.signals)
		failure := m.failures[by.name]
		if failure.IsNew(err) {
			m.cfg.Log.Warn("cannot measure what the node has left: no pod is evicted for it", "what", by.name, "error", err)
		}
		m.failures[by.name] = failure
	}
	return out
}

func (m *Meter) memory(_ context.Context, out Observations, signals []threshold.Signal) error {
	read, err := m.cfg.Kernel.Memory("/")
	if err == nil {
		out[signals[0]] = memoryLeft(read, time.Now())
	}
	return err
}

// podsMemory measures nothing as long as there is no pod, or no limit.
func (m *Meter) podsMemory(_ context.Context, out Observations, signals []threshold.Signal) error {
	read, err := m.cfg.Kernel.Memory(m.cfg.PodsCgroup)
	if errors.Is(err, kernel.ErrGone) {
		return nil
	}
	if err == nil && read.Limit < kernel.Unlimited {
		out[signals[0]] = memoryLeft(read, time.Now())
	}
	return err
}

func (m *Meter) tasks(_ context.Context, out Observations, signals []threshold.Signal) error {
	if running, most := m.cfg.Kernel.Tasks(); running >= 0 && most > 0 {
		out[signals[0]] = Observation{Available: most - running, Capacity: most, Time: time.Now()}
	}
	return nil
}

func (m *Meter) nodeFS(_ context.Context, out Observations, signals []threshold.Signal) error {
	fs, err := m.cfg.FS(m.cfg.PodsDir)
	if err == nil {
		observeFS(out, signals, &fs, time.Now())
	}
	return err
}

func (m *Meter) imageFS(ctx context.Context, out Observations, signals []threshold.Signal) error {
	if !m.findImagesDir(ctx) {
		return nil
	}
	fs, err := m.cfg.FS(m.imagesDir)
	if err != nil {
		m.imagesDir = "" // another disk may be mounted
		return err
	}
	observeFS(out, signals, &fs, time.Now())
	return nil
}

// memoryLeft counts as the kubelet does.
func memoryLeft(m kernel.Memory, at time.Time) Observation {
	return Observation{Available: int64(m.Available()), Capacity: int64(m.Limit), Time: at}
}

// observeFS sets both signals of a file system: space and inodes. A file system without inodes
// of its own (btrfs) has no signal for them.
func observeFS(out Observations, signals []threshold.Signal, fs *stats.FsStats, at time.Time) {
	out[signals[0]] = Observation{Available: int64(*fs.AvailableBytes), Capacity: int64(*fs.CapacityBytes), Time: at}
	if *fs.Inodes > 0 {
		out[signals[1]] = Observation{Available: int64(*fs.InodesFree), Capacity: int64(*fs.Inodes), Time: at}
	}
}

// findImagesDir asks the runtime where its images are, until it has said so.
func (m *Meter) findImagesDir(ctx context.Context) bool {
	if m.imagesDir == "" {
		m.imagesDir = m.cfg.ImagesDir(ctx)
	}
	return m.imagesDir != ""
}

// HasDedicatedImageFS compares the file systems of images and pods.
func (m *Meter) HasDedicatedImageFS(ctx context.Context) bool {
	return m.findImagesDir(ctx) && !m.cfg.SameFS(m.imagesDir, m.cfg.PodsDir)
}
