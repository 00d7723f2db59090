package agent_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent"
	"podd/cri/critest/state"
	"podd/internal/pod"
	"podd/objects"
	"podd/status"
)

// node is one machine: a runtime, a disk, sources, and podd, which comes and
// goes.
type node struct {
	*fakeRuntime
	sources []pod.Source

	disk     sync.Mutex       // guards what follows down to events
	objects  []*pod.Object    // that the sources have
	store    *objects.Store   // this podd's
	silent   bool             // the apiserver has not answered yet when an object is looked up
	held     map[pod.UID]bool // pulls that failed because a Secret is missing
	removed  map[string]int   // logs, by pod name
	tears    time.Duration    // how long TearDown takes
	mounts   map[pod.UID]bool
	released map[pod.UID]int
	cgroup   map[pod.UID]bool
	busy     map[pod.UID]bool        // cgroups with processes
	images   map[string]*fakeImage   // by pod name; absent: there
	report   map[string]pod.Report   // by pod name
	taken    map[string]pod.UID      // desired pods, by name
	reports  map[string]int          // how many, by pod name
	status   map[string]v1.PodStatus // by pod name
	events   map[string]int          // "shop BackOff"
	dead     map[string]bool         // pods whose volumes' server is dead
	aborting map[string]int          // calls of AbortRequests in progress, by pod name

	warnings []pod.Warning // of each sandbox
	lacking  func()        // is called when a container lacked an object; nil for nothing

	wants map[pod.Source]map[string]*pod.Desired
	spoke map[pod.Source]bool

	gate   *gate
	prober *prober
	hooks  *hooks
	// resizer is nil for a node that grants every resize.
	resizer agent.Resizer

	// edit changes what each podd is made of; nil for nothing.
	edit func(context.Context, *podd, *agent.Config)

	logRemovals string // directory
	ended       string // directory
	allocations string // directory
	accepted    string // directory
	starts      string // directory
	interrupted string // directory
	podd        *podd
}

type fakeImage struct {
	takes  time.Duration
	asked  bool
	pulled bool
}

// podd is one life of the agent.
type podd struct {
	agent   *agent.Agent
	updates chan pod.Update
	conn    *conn
	cancel  context.CancelFunc
	done    chan struct{}
}

func newNode(r *fakeRuntime) *node {
	n := &node{
		fakeRuntime: r, logRemovals: r.t.TempDir(), ended: r.t.TempDir(), allocations: r.t.TempDir(), accepted: r.t.TempDir(), starts: r.t.TempDir(), interrupted: r.t.TempDir(), gate: newGate(), hooks: newHooks(r), sources: []pod.Source{pod.SourceFile, pod.SourceHTTP},
		mounts: make(map[pod.UID]bool), released: make(map[pod.UID]int), cgroup: make(map[pod.UID]bool),
		images: make(map[string]*fakeImage), removed: make(map[string]int), report: make(map[string]pod.Report), status: make(map[string]v1.PodStatus), taken: make(map[string]pod.UID), reports: make(map[string]int), events: make(map[string]int), dead: make(map[string]bool), aborting: make(map[string]int),
		wants: map[pod.Source]map[string]*pod.Desired{pod.SourceFile: {}, pod.SourceHTTP: {}, pod.SourceAPIServer: {}},
		spoke: make(map[pod.Source]bool),
	}
	n.prober = newProber(func(uid pod.UID) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.fakeRuntime.wake != nil {
			n.fakeRuntime.wake(uid, time.Time{})
		}
	})
	n.held = make(map[pod.UID]bool)
	return n
}

// start begins a life of podd. Sources that were ready send again what they
// want, as they do at each start.
func (n *node) start() {
	c := &conn{fakeRuntime: n.fakeRuntime, dead: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p := &podd{updates: make(chan pod.Update), conn: c, cancel: cancel, done: make(chan struct{})}
	cfg := agent.Config{
		Parts: agent.Parts{
			Observer: c, Inputs: inputs{n}, Sandboxes: c, Containers: c, Images: n, Volumes: disk{n}, Cgroups: n, Files: n,
			Probes: n.prober, Hooks: n.hooks, Admitter: n.gate, Resizer: n.resizer, HostIP: func() string { return "192.0.2.1" },
		},
		Logs: n, Status: n, Events: n, Sources: n.sources, Log: slog.New(slog.NewTextHandler(logTo{n.t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: prometheus.NewRegistry(), ParallelStarts: 4, LogRemovalsDir: n.logRemovals, CompletedDir: n.ended, AllocatedDir: n.allocations, AcceptedDir: n.accepted, StartsDir: n.starts, InterruptionsDir: n.interrupted,
	}
	store := n.newStore()
	cfg.Objects = store
	if n.edit != nil {
		n.edit(ctx, p, &cfg)
	}
	p.agent = agent.New(cfg)
	n.podd = p
	n.disk.Lock()
	clear(n.report) // statuses are podd's, not the disk's
	clear(n.status)
	n.disk.Unlock()
	n.mu.Lock()
	for _, b := range n.rt.Sandboxes() {
		n.unordered[uidOf(b)] = n.unordered[uidOf(b)] || !n.isWanted(uidOf(b))
	}
	n.wake = p.agent.Wake
	n.mu.Unlock()
	go func() { _ = store.Run(ctx, listener{p.agent}) }()
	go func() {
		defer close(p.done)
		if err := p.agent.Run(ctx, p.updates); err != nil {
			n.t.Errorf("agent.Run: %v", err)
		}
	}()
	for _, s := range n.sources {
		if n.spoke[s] {
			n.speak(s)
		}
	}
}

func (n *node) isWanted(uid pod.UID) bool {
	for _, wants := range n.wants {
		for _, d := range wants {
			if d.UID() == uid {
				return true
			}
		}
	}
	return false
}

// stop ends podd, gently or by kill -9; the runtime goes on.
func (n *node) stop(kill bool) {
	n.mu.Lock()
	n.wake = nil
	n.mu.Unlock()
	if kill {
		close(n.podd.conn.dead)
	}
	n.podd.cancel()
	<-n.podd.done
	n.podd = nil
}

// speak sends all that a source wants.
func (n *node) speak(s pod.Source) {
	n.spoke[s] = true
	u := pod.Update{Op: pod.OpAdd, Source: s}
	for _, d := range n.wants[s] {
		u.Pods = append(u.Pods, d)
	}
	n.send(u)
}

func (n *node) send(u pod.Update) {
	if n.podd != nil {
		n.podd.updates <- u
	}
}

// want makes a source name this pod; nil d takes the name away.
func (n *node) want(s pod.Source, name string, d *pod.Desired) {
	before := n.wants[s][name]
	n.spoke[s] = true
	n.disk.Lock()
	if delete(n.taken, name); d != nil {
		n.taken[name] = d.UID()
	}
	n.disk.Unlock()
	switch {
	case d != nil && d.Pod.DeletionTimestamp != nil:
		n.wants[s][name] = d
		n.send(pod.Update{Op: pod.OpDelete, Source: s, Pods: []*pod.Desired{d}})
		return
	case before != nil && d != nil && d.UID() == before.UID() && d.Pod.Generation != before.Pod.Generation:
		n.wants[s][name] = d
		n.send(pod.Update{Op: pod.OpUpdate, Source: s, Pods: []*pod.Desired{d}})
		return
	case before != nil && (d == nil || d.UID() != before.UID()):
		delete(n.wants[s], name)
		n.send(pod.Update{Op: pod.OpRemove, Source: s, Pods: []*pod.Desired{before}})
	}
	if d != nil {
		n.wants[s][name] = d
		n.send(pod.Update{Op: pod.OpAdd, Source: s, Pods: []*pod.Desired{d}})
	}
}

// What follows are the agent's other neighbours.

func (n *node) Ensure(_ context.Context, p *v1.Pod, _ *v1.Container) (pod.ImageState, error) {
	n.disk.Lock()
	defer n.disk.Unlock()
	if len(p.Spec.ImagePullSecrets) > 0 {
		return n.pullWithSecrets(p), nil
	}
	img := n.images[p.Name]
	if img == nil || img.pulled {
		return pod.ImageState{Ready: true, Ref: "sha256:1"}, nil
	}
	if !img.asked {
		img.asked = true
		time.AfterFunc(img.takes, func() {
			n.disk.Lock()
			img.pulled = true
			n.disk.Unlock()
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.wake != nil {
				n.wake(p.UID, time.Time{})
			}
		})
	}
	return pod.ImageState{Reason: "ContainerCreating", Message: "pulling"}, nil
}

func (n *node) Forget(uid pod.UID) {
	n.disk.Lock()
	defer n.disk.Unlock()
	for name, r := range n.report {
		if r.Desired.UID() == uid {
			delete(n.report, name)
			delete(n.status, name)
		}
	}
}

func (n *node) Drop(uid pod.UID) { n.Forget(uid) }

func (n *node) SetUp(_ context.Context, p *v1.Pod) error {
	n.disk.Lock()
	defer n.disk.Unlock()
	n.mounts[p.UID] = true
	return nil
}

func (n *node) Devices(*v1.Pod, *v1.Container) ([]pod.Device, error) { return nil, nil }

func (n *node) Mounts(_ *v1.Pod, _ *v1.Container, subPaths []string) (mounts []pod.Mount, err error) {
	for _, sub := range subPaths {
		mounts = append(mounts, pod.Mount{HostPath: sub})
	}
	return mounts, nil
}

func (n *node) TearDown(_ context.Context, uid pod.UID) error {
	n.mustNotRun(uid, "its volumes are unmounted")
	n.disk.Lock()
	takes := n.tears
	n.disk.Unlock()
	time.Sleep(takes)
	n.disk.Lock()
	defer n.disk.Unlock()
	delete(n.mounts, uid)
	return nil
}

func (n *node) Release(_ context.Context, uid pod.UID) error {
	n.mustNotRun(uid, "its volumes are unmounted")
	n.disk.Lock()
	defer n.disk.Unlock()
	n.released[uid]++
	return nil
}

// Retry is for a pull that is held back.
func (n *node) Retry(uid pod.UID) {
	n.disk.Lock()
	defer n.disk.Unlock()
	delete(n.held, uid)
}

func (n *node) Discard(ctx context.Context, uid pod.UID) error {
	n.disk.Lock()
	n.events["discarded "+string(uid)]++
	n.disk.Unlock()
	return n.Release(ctx, uid)
}

func (n *node) EnsureCgroup(_ context.Context, p *v1.Pod) error {
	n.disk.Lock()
	defer n.disk.Unlock()
	n.cgroup[p.UID] = true
	return nil
}

func (n *node) RemoveCgroup(_ context.Context, p *v1.Pod) error {
	n.mustNotRun(p.UID, "its cgroup is removed")
	n.disk.Lock()
	defer n.disk.Unlock()
	delete(n.cgroup, p.UID)
	return nil
}

// faulty says that a call was told to fail.
func (n *node) faulty(call string) error {
	return n.faults.Begin(call, "").Err()
}

func (n *node) Pods() ([]pod.UID, error) {
	if err := n.faulty("Pods"); err != nil {
		return nil, err
	}
	n.disk.Lock()
	defer n.disk.Unlock()
	return slices.Collect(maps.Keys(n.mounts)), nil
}

func (n *node) HasProcesses(uid pod.UID) (bool, error) {
	n.disk.Lock()
	defer n.disk.Unlock()
	return n.busy[uid], nil
}

func (n *node) KillLeftover(pod.UID, []string) error { return nil }

func (n *node) LostContainers(uid pod.UID, _ []string) ([]string, error) {
	n.disk.Lock()
	defer n.disk.Unlock()
	if n.busy[uid] {
		return []string{"/cgroup/lost"}, nil
	}
	return nil, nil
}

func (n *node) OrphanedPods(_ context.Context, known []pod.UID) ([]pod.UID, error) {
	if err := n.faulty("Leftover"); err != nil {
		return nil, err
	}
	n.disk.Lock()
	defer n.disk.Unlock()
	left := maps.Clone(n.cgroup)
	for _, uid := range known {
		delete(left, uid)
	}
	return slices.Collect(maps.Keys(left)), nil
}

func (n *node) PreparePod(*v1.Pod, pod.SandboxInputs) error { return nil }

func (n *node) PrepareContainer(req pod.ContainerRequest) (pod.ContainerRequest, error) {
	return req, nil
}

func (n *node) DiscardContainer(pod.ContainerRequest) error { return nil }

func (n *node) Link(pod.Observed) {}

func (n *node) ContainerRemoved(id string, keepLog bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.gone[id]; k != nil {
		if key := k.Sandbox.UID + "/" + k.Name; !keepLog && n.logs[key] == k.Data.RestartCount {
			delete(n.logs, key)
		}
	}
	delete(n.gone, id)
}

func (n *node) SandboxRemoved(string) {}

// OrphanedLogs: a UID is the pod's name and a number.
func (n *node) OrphanedLogs(uid pod.UID) (namespace, name string, ok bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.fakeRuntime.logs {
		if strings.HasPrefix(key, string(uid)+"/") {
			name = string(uid[:strings.LastIndexByte(string(uid), '-')])
			return "default", name, true, nil
		}
	}
	return "", "", false, nil
}

func (n *node) RemoveLogs(p *v1.Pod) error {
	n.disk.Lock()
	n.removed[p.Name]++
	n.disk.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.fakeRuntime.logs, func(key string, _ int32) bool { return strings.HasPrefix(key, string(p.UID)+"/") })
	return nil
}

func (n *node) Report(r pod.Report) {
	n.disk.Lock()
	defer n.disk.Unlock()
	if n.taken[r.Desired.Pod.Name] != "" && n.taken[r.Desired.Pod.Name] != r.Desired.UID() {
		return // of another generation, which is not what scripts ask about
	}
	n.report[r.Desired.Pod.Name] = r
	n.reports[r.Desired.Pod.Name]++
	n.status[r.Desired.Pod.Name] = status.Options{}.Compute(r, n.status[r.Desired.Pod.Name])
}

// ForgetPod implements Recorder: scripts see it as an event.
func (n *node) ForgetPod(uid pod.UID) {
	n.disk.Lock()
	defer n.disk.Unlock()
	name, _, _ := strings.Cut(string(uid), "-")
	n.events[name+" Gone"]++
}

func (n *node) ContainerEvent(p *v1.Pod, _, eventType, reason, message string) {
	n.Event(p, eventType, reason, message)
}

func (n *node) Event(p *v1.Pod, eventType, reason, message string) {
	n.disk.Lock()
	defer n.disk.Unlock()
	n.events[p.Name+" "+reason]++
	n.events[p.Name+" "+eventType+" "+reason]++
	n.events[p.Name+" "+reason+": "+message]++
}

func (n *node) mustNotRun(uid pod.UID, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.rt.Containers() {
		if uidOf(k.Sandbox) == uid && k.State == state.Running {
			n.t.Errorf("%s runs while %s", called(k), what)
		}
	}
}

// logTo writes podd's log into the test's.
type logTo struct{ t interface{ Log(...any) } }

func (l logTo) Write(b []byte) (int, error) {
	l.t.Log(time.Now().Format("15:04:05.000"), string(b[:len(b)-1]))
	return len(b), nil
}
