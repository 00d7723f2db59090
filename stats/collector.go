package stats

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
	"podd/stats/kernel"
)

// Group is a cgroup of the pods' tree, by its path in the hierarchies.
type Group struct {
	Path string
	// Pod is the UID of the pod that the cgroup belongs to; dashes may be underscores. ID
	// is a sandbox's or container's. Both are empty above the pods.
	Pod pod.UID
	ID  string
}

// Storage measures disks. It waits a second at most, and reuses what is fresh.
// *usage.Meter implements it.
type Storage interface {
	NodeFS() (api.FsStats, error)
	Pods(ctx context.Context, pods []*v1.Pod) []api.PodStats
}

// Config configures a Collector.
type Config struct {
	Node   string
	Kernel *kernel.Reader
	// RootCgroup is the path of the cgroup above all pods, Groups lists it and what is below,
	// each cgroup before those below it.
	RootCgroup string
	Groups     func() []Group
	// SystemCgroup is the path of the cgroup of the system's processes; empty for none.
	SystemCgroup string
	// Identify asks the runtime what its sandboxes and containers are.
	Identify func(context.Context) ([]pod.Identity, error)
	// Pods are those that have not completed, with their newest status.
	Pods    func() []*v1.Pod
	Storage Storage
	// Images measures the file systems of images and of containers' writable layers. It
	// waits for the runtime; its answer is shared with nobody.
	Images func(context.Context) (*api.RuntimeStats, error)
	// Disk is a path on the file system of pods' directories and layers.
	Disk string
	// PastOOMKills returns how many OOM kills have ended earlier containers of that name; nil
	// for none. It must not block.
	PastOOMKills func(uid pod.UID, container, id string) uint64
	// RuntimePID returns the runtime's process, 0 if unknown.
	RuntimePID func() int
	// Version is podd's.
	Version string
	Log     *slog.Logger
}

// Collector reads when it is asked. Create it with New; its methods may be called
// concurrently.
type Collector struct {
	cfg     Config
	machine func() kernel.Machine

	mu      sync.Mutex                // guards flights
	flights map[kernel.Detail]*flight // readings under way

	readSlot chan struct{} // capacity 1; holds the one reading, which owns what follows
	rates
	identities identities
	runtime    daemon
	own        daemon
	lastLogged string // the last error that was logged
}

// flight is a reading; snap may be read once done is closed.
type flight struct {
	done chan struct{}
	snap *Snapshot
}

// New returns a Collector, which has read nothing yet.
func New(cfg Config) *Collector {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Collector{
		cfg: cfg, machine: sync.OnceValue(cfg.Kernel.Machine), flights: map[kernel.Detail]*flight{},
		readSlot: make(chan struct{}, 1), identities: newIdentities(), own: daemon{pid: os.Getpid()},
	}
	c.rates.byName = map[string]*rate{}
	return c
}

// Snapshot is one reading. It is shared, and not changed.
type Snapshot struct {
	Time time.Time
	// all are the machine's root, the root of pods and what is below it.
	all    []measured
	system []system
	// Err is what could not be read.
	Err error
}

// measured is a cgroup with what it has used.
type measured struct {
	Group
	kernel.Sample
	// who is known for sandboxes and containers; of a pod's cgroup it has the pod's names
	// alone.
	who pod.Identity
	// rate is nanoseconds of CPU a second; nil if unknown.
	rate *uint64
	// network is set for the machine's root and for sandboxes with a network of their
	// own.
	network []kernel.Interface
}

// isPod and isContainer: neither is true above the pods, nor for sandboxes.
func (m *measured) isPod() bool       { return m.Pod != "" && m.ID == "" }
func (m *measured) isContainer() bool { return m.ID != "" && m.who.Container != "" }
func (m *measured) isSandbox() bool   { return m.ID != "" && m.who.Container == "" }

// snapshot returns a reading that began after the request, or one that was already in
// progress.
func (c *Collector) snapshot(ctx context.Context, detail kernel.Detail) (*Snapshot, error) {
	c.mu.Lock()
	f := c.flights[detail]
	if f == nil && detail == kernel.Usage {
		f = c.flights[kernel.All] // has it, too
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[detail] = f
		go c.collect(context.WithoutCancel(ctx), f, detail)
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.snap, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// collect reads for all waiting requests.
func (c *Collector) collect(ctx context.Context, f *flight, detail kernel.Detail) {
	c.readSlot <- struct{}{}
	f.snap = c.read(ctx, detail)
	<-c.readSlot
	c.mu.Lock()
	delete(c.flights, detail)
	c.mu.Unlock()
	close(f.done)
}

// read reads everything once; its caller holds readSlot.
func (c *Collector) read(ctx context.Context, detail kernel.Detail) *Snapshot {
	begun := time.Now()
	groups := c.cfg.Groups()
	snap := &Snapshot{Time: time.Now(), all: make([]measured, 0, len(groups)+1)}
	errs := []error{c.identities.refresh(ctx, groups, c.cfg.Identify)}
	for _, g := range append([]Group{{Path: "/"}}, groups...) {
		who, known := c.identities.lookup(g)
		if !known {
			continue // of another program, or so new that the runtime does not list it
		}
		s, err := c.cfg.Kernel.Cgroup(g.Path, detail)
		if errors.Is(err, kernel.ErrGone) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m := measured{Group: g, Sample: s, who: who}
		if c.cfg.PastOOMKills != nil && m.isContainer() && m.Memory != nil {
			m.Memory.OOMKills += c.cfg.PastOOMKills(who.UID, who.Container, m.ID)
		}
		if s.CPU != nil {
			m.rate = c.rates.observe(g.Path, point{s.Time, s.CPU.Usage}, countedSince(s, begun))
		}
		snap.all = append(snap.all, m)
	}
	c.networks(snap.all)
	snap.system = c.measureSystem(snap)
	c.rates.forget()
	c.cfg.Kernel.Sweep()
	c.identities.forget(groups)
	snap.Err = errors.Join(errs...)
	c.logOnce(snap.Err)
	return snap
}

// countedSince returns when a cgroup had used nothing yet, for a reading that began at begun.
// A cgroup of any age may be new to the kernel's memory, with all that it has used.
func countedSince(s kernel.Sample, begun time.Time) time.Time {
	if s.Created.After(begun.Add(-minRateInterval)) {
		return s.Time
	}
	return s.Created
}

// networks reads the networks of the node and of each pod. Any process of a pod will do:
// all share its namespace. A pod on the node's network has none of its own. cAdvisor
// instead shows the node's under each such pod, so that sums count it many times.
func (c *Collector) networks(all []measured) {
	own := c.cfg.Kernel.NetworkOf(os.Getpid())
	for i := range all {
		m := &all[i]
		switch {
		case m.Path == "/":
			m.network, _ = c.cfg.Kernel.Network(1)
		case m.isSandbox() && m.FirstPID != 0 && (own == "" || c.cfg.Kernel.NetworkOf(m.FirstPID) != own):
			m.network, _ = c.cfg.Kernel.Network(m.FirstPID) // it may have ended
		}
	}
}

// logOnce logs a problem once, not at each scrape.
func (c *Collector) logOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.lastLogged {
		c.cfg.Log.Warn("cannot read all statistics: what is missing is left out", "error", err)
	}
	c.lastLogged = text
}
