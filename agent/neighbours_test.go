package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// gate is the node's admission: one pod at a time has a host port, and the pods that
// a script rejects are rejected.
type gate struct {
	mu       sync.Mutex                 // guards what follows
	rejected map[string]pod.Verdict     // by pod name
	victims  map[string]string          // pod name → whose place it takes
	asked    map[string]int             // by pod name
	counted  map[string]map[string]bool // pod name → others, when it was last asked about
}

func newGate() *gate {
	return &gate{rejected: make(map[string]pod.Verdict), victims: make(map[string]string),
		asked: make(map[string]int), counted: make(map[string]map[string]bool)}
}

func (*gate) CountRejection(string) {}

func (g *gate) Admit(p *v1.Pod, others []*v1.Pod) pod.Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked[p.Name]++
	g.counted[p.Name] = make(map[string]bool)
	for _, o := range others {
		g.counted[p.Name][o.Name] = true
		if g.victims[p.Name] == o.Name {
			return pod.Verdict{Preempt: []pod.UID{o.UID}, PreemptFor: "cpu"}
		}
		for mine := range hostPorts(p) {
			if hostPorts(o)[mine] {
				return pod.Verdict{Reason: "NodePorts", Message: fmt.Sprintf("port %s is taken by %s", mine, o.Name)}
			}
		}
	}
	return g.rejected[p.Name]
}

func hostPorts(p *v1.Pod) map[string]bool {
	ports := make(map[string]bool)
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ports[fmt.Sprint(port.HostPort, port.Protocol)] = true
			}
		}
	}
	return ports
}

// prober probes as a script says: each probe comes out well unless it is told to
// fail, after the time that its spec gives.
type prober struct {
	wake func(pod.UID)

	mu    sync.Mutex      // guards what follows
	fails map[string]bool // "shop/web live"
	pods  map[pod.UID]*probedPod
	syncs map[pod.UID]int
	// retained is the argument of the last Retain; nil before the first.
	retained map[pod.UID]bool
}

type probedPod struct {
	name        string
	terminating bool
	containers  map[string]*probedContainer
}

type probedContainer struct {
	pod.Probes
	spec   *v1.Container
	cancel []func() bool
}

func newProber(wake func(pod.UID)) *prober {
	return &prober{wake: wake, fails: make(map[string]bool), pods: make(map[pod.UID]*probedPod), syncs: make(map[pod.UID]int)}
}

func (p *prober) Sync(target *v1.Pod, _ string, targets []pod.ProbeTarget, terminating bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncs[target.UID]++
	known := p.pods[target.UID]
	if known == nil {
		known = &probedPod{name: target.Name, containers: make(map[string]*probedContainer)}
		p.pods[target.UID] = known
	}
	known.terminating = terminating
	run := make(map[string]bool)
	for _, t := range targets {
		name := t.Container.Name
		run[name] = true
		if c := known.containers[name]; c == nil || c.ContainerID != t.ContainerID {
			if c != nil {
				c.stop()
			}
			c = &probedContainer{Probes: pod.Probes{ContainerID: t.ContainerID}, spec: t.Container}
			known.containers[name] = c
			c.Live, c.Ready = pod.ProbeUnknown, pod.ProbeUnknown
			p.beginLocked(target.UID, known, c)
		}
	}
	for name, c := range known.containers {
		if !run[name] {
			c.stop()
			delete(known.containers, name)
		}
	}
}

func (c *probedContainer) stop() {
	for _, cancel := range c.cancel {
		cancel()
	}
	c.cancel = nil
}

// beginLocked lets a container's probes begin: the startup probe, and after its
// success the others.
func (p *prober) beginLocked(uid pod.UID, of *probedPod, c *probedContainer) {
	if c.spec.StartupProbe != nil && c.Startup != pod.ProbeSucceeded {
		p.afterLocked(uid, of, c, "startup", c.spec.StartupProbe, &c.Startup)
		return
	}
	if c.spec.LivenessProbe != nil {
		p.afterLocked(uid, of, c, "live", c.spec.LivenessProbe, &c.Live)
	}
	if c.spec.ReadinessProbe != nil {
		p.afterLocked(uid, of, c, "ready", c.spec.ReadinessProbe, &c.Ready)
	}
}

func (p *prober) afterLocked(uid pod.UID, of *probedPod, c *probedContainer, kind string, probe *v1.Probe, result *pod.ProbeResult) {
	period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
	wait := time.Duration(probe.InitialDelaySeconds)*time.Second + callTime
	fails := p.fails[of.name+"/"+c.spec.Name+" "+kind]
	if fails {
		wait += period * time.Duration(max(probe.FailureThreshold, 1)-1)
	}
	t := time.AfterFunc(wait, func() {
		p.mu.Lock()
		if of.terminating && kind != "ready" {
			p.mu.Unlock()
			return
		}
		*result = pod.ProbeSucceeded
		if fails {
			*result = pod.ProbeFailed
		}
		if kind == "startup" && !fails {
			p.beginLocked(uid, of, c)
		}
		p.mu.Unlock()
		p.wake(uid)
	})
	c.cancel = append(c.cancel, t.Stop)
}

// set changes how a probe comes out from now on.
func (p *prober) set(name, ctr, kind string, fails bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails[name+"/"+ctr+" "+kind] = fails
	for uid, known := range p.pods {
		if c := known.containers[ctr]; known.name == name && c != nil {
			c.stop()
			p.beginLocked(uid, known, c)
		}
	}
}

func (p *prober) Results(uid pod.UID) pod.ProbeResults {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[uid]
	if known == nil {
		return nil
	}
	results := make(pod.ProbeResults)
	for name, c := range known.containers {
		results[name] = c.Probes
	}
	return results
}

func (p *prober) Retain(keep map[pod.UID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retained = keep
}

func (p *prober) Forget(uid pod.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pods[uid].all() {
		c.stop()
	}
	delete(p.pods, uid)
	delete(p.syncs, uid)
}

func (p *probedPod) all() map[string]*probedContainer {
	if p == nil {
		return nil
	}
	return p.containers
}

// hooks runs handlers as a script says; 5 ms and no error where it says nothing.
type hooks struct {
	runtime *fakeRuntime

	mu   sync.Mutex        // guards what follows
	does map[string]string // "shop/web poststart" → hangs, fails or a duration
	runs map[string]int
	now  map[string]int // under way
	free chan struct{}  // closed to end what hangs
}

// calm has every hook succeed, those under way included.
func (h *hooks) calm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.does)
	close(h.free)
	h.free = make(chan struct{})
}

func newHooks(r *fakeRuntime) *hooks {
	return &hooks{runtime: r, does: make(map[string]string), runs: make(map[string]int), now: make(map[string]int), free: make(chan struct{})}
}

func (h *hooks) Run(ctx context.Context, req pod.HookRequest) error {
	kind := "prestop"
	if l := req.Container.Lifecycle; l != nil && l.PostStart == req.Handler {
		kind = "poststart"
	}
	key := req.Pod.Name + "/" + req.Container.Name + " " + kind
	h.mu.Lock()
	h.runs[key]++
	h.now[key]++
	does, free := h.does[key], h.free
	h.mu.Unlock()
	h.runtime.note(req.Pod.Name, kind+":"+req.Container.Name)
	defer func() {
		h.mu.Lock()
		h.now[key]--
		h.mu.Unlock()
	}()
	takes := callTime
	switch does {
	case "", "succeeds", "fails":
	case "hangs":
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	default:
		var err error
		if takes, err = time.ParseDuration(does); err != nil {
			return err
		}
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if does == "fails" {
		return errors.New("the hook was told to fail")
	}
	return nil
}
