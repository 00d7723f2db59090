package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// callTime is what each call to the runtime takes in scenarios.
const callTime = 5 * time.Millisecond

// fakeRuntime is a container runtime in memory that behaves: it keeps state
// over restarts of podd, tells of what changes, refuses what a runtime refuses,
// and complains when something of a pod would run twice.
type fakeRuntime struct {
	t *testing.T

	mu         sync.Mutex // guards everything below
	wake       func(pod.UID, time.Time)
	away       bool
	sandboxes  []*fakeSandbox // oldest first
	containers []*fakeContainer
	nextID     int
	ahead      time.Duration            // by which its times are ahead of podd's clock
	fail       map[string]int           // "RunSandbox shop" or "RunSandbox" → calls still to fail
	hang       map[string]chan struct{} // "StopContainer shop" → closed to go on
	stick      map[string]bool          // "RunSandbox shop": the next one does not end
	stuck      []chan struct{}          // closed to let those go on
	reserved   map[string]bool          // names of creates that hang
	ignore     map[string]bool          // "StopContainer shop": answered, not done
	stubborn   map[string]bool          // pods that ignore the stop signal
	starting   struct{ now, most int }  // sandboxes
	listTakes  time.Duration            // from what Glance sees to its answer
	calls      map[string]int           // "RunSandbox shop"
	started    map[string]int           // "shop/web"
	looks      map[string]int           // per pod and second
	dies       map[string]death         // "shop/web": each such container ends by itself
	order      map[string][]string      // what happened to a pod's containers
	logs       map[string]int32         // the newest by UID and name
	initDone   map[string]bool          // by sandbox ID and name
	ill        map[string]bool          // "shop/web" may be stopped out of turn
	unordered  map[pod.UID]bool         // pods of whose spec a podd that started knew nothing
}

type fakeSandbox struct {
	pod.Sandbox
	uid       pod.UID
	name      string // of the pod
	source    pod.Source
	startTime time.Time
	network   bool // still held
	late      bool // it came up by itself, at any moment
}

type fakeContainer struct {
	pod.Container
	sandbox *fakeSandbox
	spec    *v1.Container
	pod     *v1.Pod
}

// death is how a container ends by itself, some time after its start.
type death struct {
	code  int32
	after time.Duration
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	return &fakeRuntime{t: t, fail: make(map[string]int), hang: make(map[string]chan struct{}), stubborn: make(map[string]bool), ignore: make(map[string]bool),
		stick: make(map[string]bool), reserved: make(map[string]bool),
		calls: make(map[string]int), started: make(map[string]int), looks: make(map[string]int),
		dies: make(map[string]death), order: make(map[string][]string), logs: make(map[string]int32), initDone: make(map[string]bool), ill: make(map[string]bool), unordered: make(map[pod.UID]bool)}
}

// conn is one podd's connection; a podd that is killed loses it, while the
// runtime goes on with what it was asked for.
type conn struct {
	*fakeRuntime
	dead chan struct{}
}

// do performs one call for a pod; effect runs in the runtime, with its lock.
func (c *conn) do(ctx context.Context, method, name string, takes time.Duration, effect func() error) error {
	hang, err := c.admit(method, name)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		if hang != nil {
			<-hang
		}
		time.Sleep(takes)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ignore[method+" "+name] {
			done <- nil
			return
		}
		done <- effect()
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

func (r *fakeRuntime) admit(method, name string) (hang chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[method+" "+name]++
	if r.away {
		return nil, fmt.Errorf("%s: %w", method, pod.ErrUnavailable)
	}
	for _, key := range []string{method, method + " " + name} {
		if r.fail[key] > 0 {
			r.fail[key]--
			return nil, pod.WithReason(method+"Error", fmt.Errorf("%s was told to fail", method))
		}
	}
	if r.stick[method+" "+name] {
		delete(r.stick, method+" "+name)
		hang := make(chan struct{})
		r.stuck = append(r.stuck, hang)
		return hang, nil
	}
	return r.hang[method+" "+name], nil
}

// reserve takes the name of a create that will hang; free that of one that does
// not hang any more. A caller that goes away does not free it.
func (r *fakeRuntime) reserve(method, podName, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reserved[name] {
		return fmt.Errorf("%s: %w", name, pod.ErrNameReserved)
	}
	key := method + " " + podName
	hangs := r.hang[key] != nil || r.stick[key]
	if hangs && !r.away && r.fail[key] == 0 && r.fail[method] == 0 {
		r.reserved[name] = true
	}
	return nil
}

// now is by the runtime's clock, without a monotonic part.
func (r *fakeRuntime) now() time.Time { return time.Now().Add(r.ahead).Round(0) }

func (r *fakeRuntime) changed(s *fakeSandbox) {
	if r.wake != nil && !r.away {
		r.wake(s.uid, time.Now())
	}
}

func (r *fakeRuntime) id(prefix string) string {
	r.nextID++
	return fmt.Sprintf("%s%d", prefix, r.nextID)
}

func (r *fakeRuntime) nameOf(uid pod.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.uid == uid {
			return s.name
		}
	}
	return ""
}

func (r *fakeRuntime) sandbox(id string) *fakeSandbox {
	for _, s := range r.sandboxes {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func (r *fakeRuntime) container(id string) *fakeContainer {
	for _, c := range r.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// podOf names the pod of a sandbox or container, for faults and counts.
func (r *fakeRuntime) podOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandbox(id); s != nil {
		return s.name
	}
	if c := r.container(id); c != nil {
		return c.sandbox.name
	}
	return ""
}

func (c *conn) Observe(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen := pod.Observed{UID: uid, At: time.Now()}
	err := c.do(ctx, "Observe", c.nameOf(uid), callTime, func() error {
		c.looks[fmt.Sprintf("%s %d", uid, time.Now().Unix())]++
		for _, s := range slices.Backward(c.sandboxes) {
			if s.uid == uid {
				seen.Name, seen.Namespace, seen.Source, seen.StartTime = s.name, "default", s.source, s.startTime
				seen.Sandboxes = append(seen.Sandboxes, s.Sandbox)
			}
		}
		for _, k := range slices.Backward(c.containers) {
			if k.sandbox.uid == uid {
				seen.Containers = append(seen.Containers, k.Container)
			}
		}
		return nil
	})
	if err != nil { // the runtime may still be writing
		return pod.Observed{}, err
	}
	return seen, nil
}

// Lookup is Observe: the fake's lists say all.
func (c *conn) Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	return c.Observe(ctx, uid)
}

func (c *conn) Glance(ctx context.Context) ([]pod.Glance, error) {
	var list []pod.Glance
	err := c.do(ctx, "Glance", "", callTime, func() error {
		known := make(map[pod.UID]bool)
		for _, s := range c.sandboxes {
			if !s.startTime.IsZero() && !known[s.uid] {
				known[s.uid] = true
				list = append(list, pod.Glance{UID: s.uid, Name: s.name, Namespace: "default", Source: s.source})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	takes := c.listTakes
	c.mu.Unlock()
	time.Sleep(takes)
	return list, nil
}

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
	began, name := time.Now(), fmt.Sprint(req.Pod.UID, req.Attempt)
	if err := c.reserve("RunSandbox", req.Pod.Name, name); err != nil {
		return "", err
	}
	err := c.do(ctx, "RunSandbox", req.Pod.Name, 20*callTime, func() error {
		delete(c.reserved, name)
		late := time.Since(began) > 20*callTime // it hung, and its caller may be gone
		for _, s := range c.sandboxes {
			if s.uid == req.Pod.UID && s.Attempt == req.Attempt {
				return pod.ErrNameReserved
			}
			if s.name == req.Pod.Name && s.network && !s.late && !late {
				c.t.Errorf("a sandbox of %s is made while another (%s) holds its network", s.name, s.ID)
			}
		}
		id = c.id("s")
		c.add(&fakeSandbox{
			Sandbox: pod.Sandbox{ID: id, Attempt: req.Attempt, HostNetwork: req.Pod.Spec.HostNetwork},
			uid:     req.Pod.UID, name: req.Pod.Name, source: req.Source, startTime: req.StartTime, late: late,
		})
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (r *fakeRuntime) add(s *fakeSandbox) {
	s.Ready, s.network, s.CreatedAt, s.IPs = true, true, r.now(), []string{"10.88.0.7"}
	r.sandboxes = append(r.sandboxes, s)
	slices.SortStableFunc(r.sandboxes, func(a, b *fakeSandbox) int { return int(a.Attempt) - int(b.Attempt) })
	r.changed(s)
}

func (c *conn) StopSandbox(ctx context.Context, id string) error {
	return c.do(ctx, "StopSandbox", c.podOf(id), 10*callTime, func() error {
		s := c.sandbox(id)
		if s == nil {
			return nil
		}
		for _, k := range c.containers {
			if k.sandbox == s && k.State != pod.ContainerExited {
				c.end(k, 137)
			}
		}
		news := s.Ready || s.network
		s.Ready, s.network, s.IPs = false, false, nil
		if news {
			c.changed(s)
		}
		return nil
	})
}

func (c *conn) RemoveSandbox(ctx context.Context, id string) error {
	if err := c.StopSandbox(ctx, id); err != nil {
		return err
	}
	return c.do(ctx, "RemoveSandbox", c.podOf(id), callTime, func() error {
		s := c.sandbox(id)
		if s == nil {
			return nil
		}
		c.containers = slices.DeleteFunc(c.containers, func(k *fakeContainer) bool { return k.sandbox == s })
		c.sandboxes = slices.DeleteFunc(c.sandboxes, func(x *fakeSandbox) bool { return x == s })
		c.changed(s)
		return nil
	})
}

func (c *conn) CreateContainer(ctx context.Context, req pod.ContainerRequest) (string, error) {
	var id string
	req.RestartCount = c.count(req)
	name := fmt.Sprint(req.Pod.UID, req.Container.Name, req.RestartCount)
	if err := c.reserve("CreateContainer", req.Pod.Name, name); err != nil {
		return "", err
	}
	err := c.do(ctx, "CreateContainer", req.Pod.Name, callTime, func() error {
		delete(c.reserved, name)
		s := c.sandbox(req.Sandbox.ID)
		if s == nil || !s.Ready {
			return fmt.Errorf("sandbox %s: %w", req.Sandbox.ID, pod.ErrNotFound)
		}
		for _, k := range c.containers {
			if k.sandbox.uid == s.uid && k.Name == req.Container.Name && k.RestartCount == req.RestartCount {
				return pod.ErrNameReserved
			}
		}
		id = c.id("c")
		c.containers = append(c.containers, &fakeContainer{sandbox: s, spec: req.Container, pod: req.Pod, Container: pod.Container{
			ID: id, Hash: pod.ContainerHash(req.Container), Name: req.Container.Name, SandboxID: s.ID, State: pod.ContainerCreated,
			RestartCount: req.RestartCount, GracePeriod: gracePeriod(req.Pod), Kept: kept(req.Container), CreatedAt: c.now(), Image: req.Container.Image, ImageID: req.Image.Ref,
		}})
		c.changed(s)
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (c *conn) StartContainer(ctx context.Context, id string) error {
	return c.do(ctx, "StartContainer", c.podOf(id), 10*callTime, func() error {
		k := c.container(id)
		if k == nil {
			return pod.ErrNotFound
		}
		if k.State != pod.ContainerCreated {
			return fmt.Errorf("container %s is %v", id, k.State)
		}
		if !k.sandbox.Ready {
			return fmt.Errorf("sandbox %s is not running", k.SandboxID)
		}
		for _, other := range c.containers {
			if other.sandbox.name == k.sandbox.name && other.State == pod.ContainerRunning &&
				(other.Name == k.Name || other.sandbox.uid != k.sandbox.uid) {
				c.t.Errorf("%s/%s (%s) starts while %s of the same pod runs", k.sandbox.name, k.Name, k.ID, other.ID)
			}
		}
		c.checkTurn(k)
		k.State, k.StartedAt = pod.ContainerRunning, c.now()
		c.began(k)
		c.started[k.sandbox.name+"/"+k.Name]++
		c.changed(k.sandbox)
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
	c.checkStop(c.container(id), grace)
	c.mu.Unlock()
	return c.do(ctx, "StopContainer", name, takes, func() error {
		if k := c.container(id); k != nil && k.State != pod.ContainerExited {
			c.end(k, 143)
		}
		return nil
	})
}

func (c *conn) RemoveContainer(ctx context.Context, id string, keepLog bool) error {
	return c.do(ctx, "RemoveContainer", c.podOf(id), callTime, func() error {
		if k := c.container(id); k != nil {
			if key := string(k.sandbox.uid) + "/" + k.Name; !keepLog && c.logs[key] == k.RestartCount {
				delete(c.logs, key)
			}
			c.containers = slices.DeleteFunc(c.containers, func(x *fakeContainer) bool { return x == k })
			c.changed(k.sandbox)
		}
		return nil
	})
}

func (r *fakeRuntime) end(k *fakeContainer, code int32) {
	k.State, k.ExitCode, k.FinishedAt, k.Reason = pod.ContainerExited, code, r.now(), "Error"
	r.noteLocked(k.sandbox.name, "-"+k.Name)
	r.initDone[k.SandboxID+"/"+k.Name] = code == 0
	if code == 0 {
		k.Reason = "Completed"
	}
	r.changed(k.sandbox)
}

// newest returns the newest container of "shop/web", or nil.
func (r *fakeRuntime) newest(what string) *fakeContainer {
	name, ctr, _ := strings.Cut(what, "/")
	for _, k := range slices.Backward(r.containers) {
		if k.sandbox.name == name && k.Name == ctr {
			return k
		}
	}
	return nil
}
