package podconfig

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Config configures a PodConfig.
type Config struct {
	// Sources, in order of precedence: if two desire the same name, the earlier gets it. Their
	// names must differ.
	Sources []Source
	// Objects receives the objects that pods refer to. It may be nil.
	Objects Objects
	// OnStaticPods is called with the pods of all sources except the apiserver, after each change.
	// complete says whether each of these sources is ready. It must not block. NoMirrorPods means
	// that there is no cluster to show them to.
	OnStaticPods func(pods []*pod.Desired, complete bool)
	Log          *slog.Logger
	// Registerer is for the metrics; nil for none.
	Registerer prometheus.Registerer
}

// NoMirrorPods is the Config.OnStaticPods of a node without a cluster.
var NoMirrorPods func(pods []*pod.Desired, complete bool)

// PodConfig merges the sources. Any goroutine may call its methods at any time. Call Run once.
type PodConfig struct {
	sources      []Source
	objects      Objects
	onStaticPods func(pods []*pod.Desired, complete bool)
	order        []pod.Source
	log          *slog.Logger
	metrics      *metrics
	updates      chan pod.Update
	poke         wake.Signal
	changes      wake.Broadcaster // of the list of problems

	// desired belongs to the goroutine of deliver.
	desired *desiredState

	mu sync.Mutex
	// inbox holds the newest unmerged snapshot of each source.
	inbox map[pod.Source]Snapshot
	// reported holds the last problems of each source. failures holds those of sources that do
	// not run.
	reported map[pod.Source][]pod.Problem
	failures map[pod.Source]pod.Problem
	list     problemList
	seen     map[pod.Source]bool
}

// New returns a PodConfig. Nothing runs before Run.
func New(cfg Config) *PodConfig {
	order := make([]pod.Source, len(cfg.Sources))
	for i, s := range cfg.Sources {
		order[i] = s.Name()
	}
	m := newMetrics(cfg.Registerer, order)
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &PodConfig{
		sources: cfg.Sources, objects: cfg.Objects, onStaticPods: cfg.OnStaticPods, order: order, log: log, metrics: m,
		updates: make(chan pod.Update), poke: wake.New(), desired: newDesiredState(order),
		inbox: map[pod.Source]Snapshot{}, reported: map[pod.Source][]pod.Problem{}, failures: map[pod.Source]pod.Problem{},
		list: problemList{log: log, metrics: m, current: map[problemKey]pod.Problem{}}, seen: map[pod.Source]bool{},
	}
}

// Updates returns the stream of changes, unbuffered and for one reader. It is closed when Run
// returns. The reader must apply each update before it takes the next: the next update after a
// removal implies that the removed pods are being stopped.
func (c *PodConfig) Updates() <-chan pod.Update { return c.updates }

// Problems returns the current problems of manifests, by place. There are at most 501; the last
// one then counts the rest. The caller may keep the slice.
func (c *PodConfig) Problems() []pod.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list.sorted)
}

// SeenAll reports whether every source is ready and the reader of Updates has taken their pods.
// Until then nobody may clean up after all of them. To clean up after one source, its first
// Update is enough, so a silent source delays no other.
func (c *PodConfig) SeenAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.order {
		if !c.seen[s] {
			return false
		}
	}
	return true
}

// Run runs the sources and sends the changes, until ctx is done.
func (c *PodConfig) Run(ctx context.Context) error {
	defer close(c.updates)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range c.sources {
		wg.Go(func() { c.keepRunning(ctx, s) })
	}
	return c.deliver(ctx)
}

// keepRunning runs one source, and restarts it after each failure.
func (c *PodConfig) keepRunning(ctx context.Context, s Source) {
	backoff, delay := wake.Backoff{Initial: time.Second, Max: 30 * time.Second}, time.Duration(0)
	for {
		started := time.Now()
		err := c.runSource(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it returned without an error")
		}
		if time.Since(started) > backoff.Max {
			delay = 0
		}
		c.metrics.restarts.WithLabelValues(string(s.Name())).Inc()
		c.setFailure(s.Name(), &pod.Problem{Origin: "source " + string(s.Name()),
			Message: "reading pods from this source stopped: " + err.Error(), Hint: "its last pods keep running; podd retries"})
		if delay = backoff.Next(delay); !wake.Sleep(ctx, delay) {
			return
		}
	}
}

// runSource receives the snapshots of one run of a source.
func (c *PodConfig) runSource(ctx context.Context, s Source) error {
	ctx, stop := context.WithCancel(ctx)
	out := make(chan Snapshot)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, out) }()
	for {
		select {
		case snap := <-out:
			c.setFailure(s.Name(), nil)
			c.put(s.Name(), snap)
		case err := <-ended:
			stop()
			return err
		}
	}
}

// put leaves a snapshot for deliver, and replaces one that deliver has not taken yet.
func (c *PodConfig) put(name pod.Source, snap Snapshot) {
	c.mu.Lock()
	if waiting, ok := c.inbox[name]; ok && snap.Incomplete {
		waiting.Problems = snap.Problems
		snap = waiting
	}
	c.inbox[name] = snap
	c.mu.Unlock()
	c.wake()
}

func (c *PodConfig) setFailure(name pod.Source, p *pod.Problem) {
	c.mu.Lock()
	_, had := c.failures[name]
	if p == nil {
		delete(c.failures, name)
	} else {
		c.failures[name] = *p
		if _, ok := c.inbox[name]; !ok {
			c.inbox[name] = Snapshot{Incomplete: true, Problems: c.reported[name]}
		}
	}
	c.mu.Unlock()
	if had || p != nil {
		c.wake()
	}
}

func (c *PodConfig) wake() {
	c.poke.Notify()
}

// deliver merges waiting snapshots and sends the changes, until ctx ends.
func (c *PodConfig) deliver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.poke:
		}
		snaps := c.takeSnapshots()
		removes, rest, losers := c.desired.merge(snaps)
		changed := c.desired.objects.merge(c.order)
		c.publish(snaps, losers)
		if c.onStaticPods != nil {
			c.onStaticPods(c.desired.staticPods())
		}
		if err := c.send(ctx, removes); err != nil {
			return err
		}
		if changed && c.objects != nil {
			if err := c.awaitApplied(ctx, removes); err != nil {
				return err
			}
			c.objects.Replace(slices.Clone(c.desired.objects.delivered))
		}
		if err := c.send(ctx, rest); err != nil {
			return err
		}
		c.markSeen(snaps)
	}
}

func (c *PodConfig) send(ctx context.Context, updates []pod.Update) error {
	for _, u := range updates {
		select {
		case c.updates <- u:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// awaitApplied returns once the reader has applied removals. It sends another removal without
// pods: the reader takes it only after it has applied the others.
func (c *PodConfig) awaitApplied(ctx context.Context, removes []pod.Update) error {
	if len(removes) == 0 {
		return nil
	}
	return c.send(ctx, []pod.Update{{Op: pod.OpRemove, Source: removes[0].Source, Provisional: removes[0].Provisional}})
}

func (c *PodConfig) takeSnapshots() map[pod.Source]Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	snaps := c.inbox
	c.inbox = map[pod.Source]Snapshot{}
	return snaps
}

// publish updates the list of problems from those of the sources and those of the merge.
func (c *PodConfig) publish(snaps map[pod.Source]Snapshot, losers []podDuplicate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, snap := range snaps {
		c.reported[name] = snap.Problems
	}
	by := map[pod.Source][]pod.Problem{}
	for _, name := range c.order {
		by[name] = c.reported[name]
		c.metrics.pods.WithLabelValues(string(name)).Set(float64(len(c.desired.delivered[name])))
	}
	for name, p := range c.failures {
		by[name] = append(slices.Clip(by[name]), p)
	}
	for _, l := range losers {
		by[l.loser.Source] = append(slices.Clip(by[l.loser.Source]), l.problem())
	}
	for _, l := range c.desired.objects.losers {
		by[l.loser.Source] = append(slices.Clip(by[l.loser.Source]), l.problem())
	}
	before := c.list.sorted
	c.list.replace(by, time.Now())
	if !slices.Equal(before, c.list.sorted) {
		c.changes.Notify()
	}
}

func (c *PodConfig) markSeen(snaps map[pod.Source]Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, snap := range snaps {
		if !snap.Incomplete && !snap.Provisional {
			c.seen[name] = true
		}
	}
}
