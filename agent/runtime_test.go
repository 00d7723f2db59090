package agent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest/state"
	"podd/internal/pod"
)

// callTime is what each call to the runtime takes in scenarios.
const callTime = 5 * time.Millisecond

// fakeRuntime is critest's runtime in the agent's words and in simulated time.
// What is allowed, and what scripts have go wrong, is the state's matter; here are
// the times that calls take, and what must hold of pods whatever happens: it
// complains when something of a pod would run twice.
type fakeRuntime struct {
	t      *testing.T
	rt     state.Runtime[sandboxFacts, containerFacts]
	faults state.Faults

	mu        *sync.Mutex // rt's; guards everything below, too
	wake      func(pod.UID, time.Time)
	away      bool
	stubborn  map[string]bool         // pods that ignore the stop signal
	starting  struct{ now, most int } // sandboxes
	listTakes time.Duration           // from what Summaries sees to its answer
	started   map[string]int          // "shop/web"
	made      []pod.ContainerRequest
	gone      map[string]*fakeContainer // removed ones, whose logs may be left
	observed  map[string]int            // per pod and second
	dies      map[string]death          // "shop/web": each such container ends by itself
	order     map[string][]string       // what happened to a pod's containers
	logs      map[string]int32          // the newest by UID and name
	initDone  map[string]bool           // by sandbox ID and name
	rollBack  map[string]string         // see roll-back, by pod/container
	ill       map[string]bool           // "shop/web" may be stopped out of turn
	unordered map[pod.UID]bool          // pods of whose spec a podd that started knew nothing
}

// sandboxFacts and containerFacts are what podd gave the runtime to keep.
type sandboxFacts struct {
	source    pod.Source
	startTime time.Time
	late      bool // it came up by itself, at any moment
}

type containerFacts struct {
	pod.ContainerRequest
	hash      string // of its spec
	resources *pod.ContainerResources
	neverRan  bool
}

type (
	fakeSandbox   = state.Sandbox[sandboxFacts]
	fakeContainer = state.Container[sandboxFacts, containerFacts]
)

func uidOf(b *fakeSandbox) pod.UID { return pod.UID(b.UID) }

// called is a container as scripts call it.
func called(k *fakeContainer) string { return k.Sandbox.Pod + "/" + k.Name }

// death is how a container ends by itself, some time after its start.
type death struct {
	code   int32
	reason string
	after  time.Duration
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	r := &fakeRuntime{t: t, stubborn: make(map[string]bool), started: make(map[string]int), observed: make(map[string]int),
		dies: make(map[string]death), order: make(map[string][]string), logs: make(map[string]int32), gone: make(map[string]*fakeContainer),
		rollBack: make(map[string]string), initDone: make(map[string]bool), ill: make(map[string]bool), unordered: make(map[pod.UID]bool)}
	r.mu = &r.rt.Mutex
	r.rt.Changed = r.changed
	return r
}

// conn is one podd's connection; a podd that is killed loses it, while the
// runtime goes on with what it was asked for.
type conn struct {
	*fakeRuntime
	dead chan struct{}
}

// killed says that the caller is gone.
func (c *conn) killed() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// do performs one call for a pod; effect runs in the runtime, with its lock.
func (c *conn) do(ctx context.Context, method, name string, takes time.Duration, effect func() error) error {
	return c.doBegun(ctx, method, name, takes, func() (func() error, error) { return effect, nil })
}

// doBegun is do for a call that does something before it takes its time.
func (c *conn) doBegun(ctx context.Context, method, name string, takes time.Duration, begin func() (effect func() error, err error)) error {
	fate := c.faults.Begin(method, name)
	c.mu.Lock()
	away := c.away
	c.mu.Unlock()
	if away {
		return fmt.Errorf("%s: %w", method, pod.ErrUnavailable)
	}
	if err := fate.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	effect, err := begin()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		fate.Wait(nil, true)
		time.Sleep(takes)
		c.mu.Lock()
		defer c.mu.Unlock()
		done <- fate.Do(effect)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case <-c.dead:
		return fmt.Errorf("%s: %w", method, pod.ErrUnavailable)
	}
}

// classified is an error of the fake runtime with the agent's error classes.
func classified(err error) error {
	if taken := (*state.NameError)(nil); errors.As(err, &taken) {
		return fmt.Errorf("%w: %w", err, pod.ErrNameReserved)
	}
	if down := (*state.SandboxError)(nil); errors.As(err, &down) {
		return fmt.Errorf("%w: %w", err, pod.ErrNotFound)
	}
	return err
}

// changed follows every change in the runtime: podd is told.
func (r *fakeRuntime) changed(ch state.Change[sandboxFacts, containerFacts]) {
	if k := ch.Container; k != nil && ch.Kind == state.WasStopped {
		r.noteLocked(k.Sandbox.Pod, "-"+k.Name)
		r.initDone[k.Sandbox.ID+"/"+k.Name] = !pod.Failed(pod.InitContainer, k.Exit.Code, k.Exit.Reason)
	}
	if r.wake != nil && !r.away {
		r.wake(uidOf(ch.Sandbox), time.Now())
	}
}

func (r *fakeRuntime) nameOf(uid pod.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.rt.Sandboxes() {
		if uidOf(b) == uid {
			return b.Pod
		}
	}
	return ""
}

// podOf names the pod of a sandbox or container, for faults and counts.
func (r *fakeRuntime) podOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.rt.Sandbox(id); b != nil {
		return b.Pod
	}
	if k := r.rt.Container(id); k != nil {
		return k.Sandbox.Pod
	}
	return ""
}

// seenSandbox is a sandbox as the agent sees it. All have one address, which says enough.
func seenSandbox(b *fakeSandbox) pod.Sandbox {
	out := pod.Sandbox{ID: b.ID, Attempt: b.Attempt, Ready: b.Ready, CreatedAt: b.CreatedAt, HostNetwork: b.HostNetwork}
	if b.Ready {
		out.IPs = []string{"10.88.0.7"}
	}
	return out
}

var seenStates = map[state.Process]pod.ContainerState{
	state.Created: pod.ContainerCreated, state.Running: pod.ContainerRunning, state.Exited: pod.ContainerExited, state.Lost: pod.ContainerUnknown,
}

func seenContainer(k *fakeContainer) pod.Container {
	req := k.Data
	return pod.Container{
		ID: k.ID, Hash: req.hash, Name: k.Name, SandboxID: k.Sandbox.ID, RestartCount: req.RestartCount, State: seenStates[k.State],
		GracePeriod: gracePeriod(req.Pod), ContentHashes: pod.ParseContentHashes(req.Pod.Namespace, req.ContentHashes.Text()), Kept: kept(req.Container), Image: req.Container.Image, ImageID: req.Image.Ref, Resources: req.resources,
		CreatedAt: k.CreatedAt, StartedAt: k.StartedAt, FinishedAt: k.FinishedAt, ExitCode: k.Exit.Code, Reason: k.Exit.Reason,
		NeverRan: k.Data.neverRan,
	}
}

func (c *conn) Observe(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen := pod.Observed{UID: uid, At: time.Now()}
	err := c.do(ctx, "Observe", c.nameOf(uid), callTime, func() error {
		c.observed[fmt.Sprintf("%s %d", uid, time.Now().Unix())]++
		boxes := c.rt.Sandboxes()
		slices.SortStableFunc(boxes, func(a, b *fakeSandbox) int { return cmp.Compare(a.Attempt, b.Attempt) })
		for _, b := range slices.Backward(boxes) {
			if uidOf(b) == uid {
				seen.Name, seen.Namespace, seen.Source, seen.StartTime = b.Pod, b.Namespace, b.Data.source, b.Data.startTime
				seen.Sandboxes = append(seen.Sandboxes, seenSandbox(b))
			}
		}
		for _, k := range slices.Backward(c.rt.Containers()) {
			if uidOf(k.Sandbox) == uid {
				seen.Containers = append(seen.Containers, seenContainer(k))
			}
		}
		return nil
	})
	if err != nil { // the runtime may still be writing
		return pod.Observed{}, err
	}
	return seen, nil
}

// Lookup is Observe from the fake's lists, which say all.
func (c *conn) Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen, err := c.Observe(ctx, uid)
	c.slowList()
	return seen, err
}

// slowList waits for as long as a list takes to arrive, see slow-list.
func (r *fakeRuntime) slowList() {
	r.mu.Lock()
	takes := r.listTakes
	r.mu.Unlock()
	time.Sleep(takes)
}

func (c *conn) Summaries(ctx context.Context) ([]pod.Summary, error) {
	var list []pod.Summary
	err := c.do(ctx, "Summaries", "", callTime, func() error {
		known := make(map[pod.UID]bool)
		for _, b := range c.rt.Sandboxes() {
			if uid := uidOf(b); !b.Data.startTime.IsZero() && !known[uid] {
				known[uid] = true
				list = append(list, pod.Summary{UID: uid, Name: b.Pod, Namespace: b.Namespace, Source: b.Data.source})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.slowList()
	return list, nil
}

func (c *conn) Handler(context.Context, *v1.Pod) (string, error) { return "", nil }

func (c *conn) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	c.mu.Lock()
	c.starting.now++
	c.starting.most = max(c.starting.most, c.starting.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.starting.now--
		c.mu.Unlock()
	}()
	var id string
	began := time.Now()
	err := c.doBegun(ctx, "RunSandbox", req.Pod.Name, 20*callTime, func() (func() error, error) {
		b, err := c.rt.BeginSandbox(fakeSandbox{
			Pod: req.Pod.Name, Namespace: "default", UID: string(req.Pod.UID), Attempt: req.Attempt, HostNetwork: req.Pod.Spec.HostNetwork,
			Data: sandboxFacts{source: req.Source, startTime: req.StartTime},
		})
		return func() error {
			b.Data.late = time.Since(began) > 20*callTime // it hung, and its caller may be gone
			for _, other := range c.rt.Sandboxes() {
				if other.Pod == b.Pod && !other.Stopped && !other.Data.late && !b.Data.late {
					c.t.Errorf("a sandbox of %s is made while another (%s) holds its network", b.Pod, other.ID)
				}
			}
			id = b.ID
			return c.rt.RunSandbox(b)
		}, classified(err)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// appear has a sandbox come to be without podd.
func (r *fakeRuntime) appear(b fakeSandbox) error {
	b.Namespace = "default"
	made, err := r.rt.BeginSandbox(b)
	if err != nil {
		return err
	}
	return r.rt.RunSandbox(made)
}

func (c *conn) StopSandbox(ctx context.Context, id string) error {
	return c.do(ctx, "StopSandbox", c.podOf(id), 10*callTime, func() error {
		if b := c.rt.Sandbox(id); b != nil {
			c.rt.StopSandbox(b)
		}
		return nil
	})
}

func (c *conn) RemoveSandbox(ctx context.Context, id string) error {
	if err := c.StopSandbox(ctx, id); err != nil {
		return err
	}
	return c.do(ctx, "RemoveSandbox", c.podOf(id), callTime, func() error {
		if b := c.rt.Sandbox(id); b != nil {
			c.rt.RemoveSandbox(b)
		}
		return nil
	})
}

func (c *conn) CreateContainer(ctx context.Context, req pod.ContainerRequest) (string, error) {
	var id string
	err := c.doBegun(ctx, "CreateContainer", req.Pod.Name, callTime, func() (func() error, error) {
		b := c.rt.Sandbox(req.Sandbox.ID)
		if b == nil {
			return nil, fmt.Errorf("sandbox %s: %w", req.Sandbox.ID, pod.ErrNotFound)
		}
		k, err := c.rt.BeginContainer(b, fakeContainer{
			Name: req.Container.Name, Attempt: uint32(req.RestartCount),
			Data: containerFacts{ContainerRequest: req, hash: pod.ContainerHash(req.Container)},
		})
		return func() error {
			if !b.Ready {
				c.rt.AbandonContainer(k)
				return fmt.Errorf("sandbox %s: %w", b.ID, pod.ErrNotFound)
			}
			id = k.ID
			c.made = append(c.made, req)
			return c.rt.CreateContainer(k)
		}, classified(err)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (c *conn) StartContainer(ctx context.Context, id string) error {
	return c.do(ctx, "StartContainer", c.podOf(id), 10*callTime, func() error {
		k := c.rt.Container(id)
		if k == nil {
			return pod.ErrNotFound
		}
		if err := c.rt.CanStart(k); err != nil {
			return err
		}
		for _, other := range c.rt.Containers() {
			if other.Sandbox.Pod == k.Sandbox.Pod && other.State == state.Running &&
				(other.Name == k.Name || other.Sandbox.UID != k.Sandbox.UID) {
				c.t.Errorf("%s (%s) starts while %s of the same pod runs", called(k), k.ID, other.ID)
			}
		}
		c.checkTurn(k)
		if when := c.rollBack[called(k)]; when != "" && c.killed() {
			k.Data.neverRan = when == "created"
			c.rt.FailStart(k, state.Exit{Code: 128, Reason: pod.ReasonStartError})
			return nil
		}
		if err := c.rt.StartContainer(k); err != nil {
			return err
		}
		c.began(k)
		c.started[called(k)]++
		return nil
	})
}

func (c *conn) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	name := c.podOf(id)
	takes := min(20*callTime, grace)
	c.mu.Lock()
	if c.stubborn[name] {
		takes = grace
	}
	c.checkStop(c.rt.Container(id), grace)
	c.mu.Unlock()
	return c.do(ctx, "StopContainer", name, takes, func() error {
		if k := c.rt.Container(id); k != nil {
			c.rt.End(k, state.ExitWith(143))
		}
		return nil
	})
}

func (c *conn) RemoveContainer(ctx context.Context, id string) error {
	return c.do(ctx, "RemoveContainer", c.podOf(id), callTime, func() error {
		if k := c.rt.Container(id); k != nil {
			c.gone[id] = k
			c.rt.RemoveContainer(k)
		}
		return nil
	})
}

// newest returns the newest container of "shop/web", or nil.
func (r *fakeRuntime) newest(what string) *fakeContainer {
	name, ctr, _ := strings.Cut(what, "/")
	for _, k := range slices.Backward(r.rt.Containers()) {
		if k.Sandbox.Pod == name && k.Name == ctr {
			return k
		}
	}
	return nil
}
