package prober

import (
	"math"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// probedPod is a pod with its running containers that have probes.
type probedPod struct {
	spec        *v1.Pod
	ip          string
	terminating bool
	containers  map[string]*container
	// results is replaced on each change, never modified: Results returns it.
	results pod.ProbeResults
}

// container is one container, identified by its ID: its successor is another.
type container struct {
	pod       *probedPod
	spec      *v1.Container
	id        string
	startedAt time.Time // on the prober's own clock
	// preexisting means that it was started before this podd.
	preexisting bool
	probes      [kinds]*probe
}

// started says that the other probes need not wait for a startup probe.
func (c *container) started() bool {
	pr := c.probes[startup]
	return pr == nil || pr.result == pod.ProbeSucceeded
}

// Sync sets which containers of a pod run: all of them, each time; those that are
// missing are no longer probed, and their results are forgotten. terminating stops
// liveness and startup probes for good. podIP is the target of probes without a host;
// it may be empty while it is unknown.
//
// It may be called at any rate: without a change it costs a comparison. It does not wake
// the pod, because the pod's worker is the caller. When it returns, Results has the
// results that an earlier podd saved. spec must not be modified, not even later.
func (p *Prober) Sync(spec *v1.Pod, podIP string, targets []pod.ProbeTarget, terminating bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pp := p.pods[spec.UID]
	if pp == nil {
		if !pod.HasProbes(&spec.Spec) {
			return
		}
		pp = &probedPod{containers: make(map[string]*container), results: pod.ProbeResults{}}
		p.pods[spec.UID] = pp
	}
	pp.spec, pp.ip = spec, podIP
	changed := false
	for _, c := range pp.containers {
		if !slices.ContainsFunc(targets, func(t pod.ProbeTarget) bool { return t.ContainerID == c.id && t.Container.Name == c.spec.Name }) {
			p.removeContainerLocked(c)
			changed = true
		}
	}
	for i := range targets {
		if p.addContainerLocked(pp, &targets[i]) {
			changed = true
		}
	}
	if terminating && !pp.terminating {
		pp.terminating = true
		p.stopForTerminationLocked(pp)
		changed = true
	}
	if changed {
		p.publishLocked(pp)
		p.updateExecRateLocked()
	}
}

// addContainerLocked adds a container, unless it is known already.
func (p *Prober) addContainerLocked(pp *probedPod, t *pod.ProbeTarget) (added bool) {
	if known := pp.containers[t.Container.Name]; known != nil {
		known.spec = t.Container
		return false
	}
	now := time.Now()
	c := &container{pod: pp, spec: t.Container, id: t.ContainerID, startedAt: pod.WithMonotonic(t.StartedAt, now)}
	if c.startedAt.IsZero() {
		c.startedAt = now
	}
	c.preexisting = c.startedAt.Before(p.startedAt)
	fastPeriod, _ := pod.ProbeUntilSuccess(pp.spec) // whoever reads manifests says what is wrong with it
	results := p.checkpoint.takeRestored(pp.spec.UID, t.Container.Name, t.ContainerID)
	if t.Container.StartupProbe != nil && results.Startup == pod.ProbeUnknown && reportedStarted(pp.spec, t) {
		results.Startup = pod.ProbeSucceeded
	}
	some := false
	for k := range kinds {
		spec := k.of(t.Container)
		if spec == nil {
			continue
		}
		some = true
		pr := newProbe(k, spec, c, fastPeriod)
		pr.metrics = p.metrics.forProbe(pp.spec, t.Container.Name, k)
		pr.restore(results)
		c.probes[k] = pr
	}
	if !some {
		return false
	}
	pp.containers[t.Container.Name] = c
	p.enqueueReadyLocked(c, now)
	return true
}

// reportedStarted says that the apiserver shows a container as started. Its startup probe
// has succeeded, if only for the kubelet that podd has replaced, and does not run again.
func reportedStarted(p *v1.Pod, t *pod.ProbeTarget) bool {
	s := pod.ContainerStatus(&p.Status, t.Container.Name)
	return s != nil && pod.RuntimeID(s.ContainerID) == t.ContainerID && s.Started != nil && *s.Started
}

// restore restores what an earlier podd saved of this container.
func (pr *probe) restore(r pod.Probes) {
	pr.result = [...]pod.ProbeResult{r.Startup, r.Ready, r.Live}[pr.kind]
	pr.succeeded = pr.result == pod.ProbeSucceeded
	pr.stopped = pr.kind == startup && pr.result != pod.ProbeUnknown || pr.kind == liveness && pr.result == pod.ProbeFailed
}

// enqueueReadyLocked queues the probes of a container that may run now and are not queued yet.
func (p *Prober) enqueueReadyLocked(c *container, now time.Time) {
	for k, pr := range c.probes {
		switch {
		case pr == nil || pr.stopped || pr.index >= 0 || pr.cancel != nil:
			continue
		case kind(k) != startup && !c.started(), kind(k) != readiness && c.pod.terminating:
			continue
		}
		spread := -1.0
		if c.preexisting && !(c.probes[startup] != nil && c.probes[startup].succeeded && pr.result == pod.ProbeUnknown) {
			p.spread[pr.period]++
			_, spread = math.Modf(float64(p.spread[pr.period]) * math.Phi)
		}
		pr.scheduleFirst(now, spread)
		p.enqueueLocked(pr)
	}
}

// removeContainerLocked stops a container's probes and forgets it.
func (p *Prober) removeContainerLocked(c *container) {
	for _, pr := range c.probes {
		p.stopLocked(pr)
	}
	delete(c.pod.containers, c.spec.Name)
}

// stopForTerminationLocked stops the probes that must not run while a pod terminates.
func (p *Prober) stopForTerminationLocked(pp *probedPod) {
	for _, c := range pp.containers {
		p.stopLocked(c.probes[startup])
		p.stopLocked(c.probes[liveness])
	}
}

// stopLocked stops a probe for good; it may be nil. A run in progress is cancelled,
// and its outcome discarded.
func (p *Prober) stopLocked(pr *probe) {
	if pr == nil {
		return
	}
	pr.stopped = true
	p.queue.remove(pr)
	if pr.cancel != nil {
		pr.cancel()
	}
}

// publishLocked replaces what Results returns, and has it saved.
func (p *Prober) publishLocked(pp *probedPod) {
	results := make(pod.ProbeResults, len(pp.containers))
	for name, c := range pp.containers {
		r := pod.Probes{ContainerID: c.id}
		for k, to := range [...]*pod.ProbeResult{&r.Startup, &r.Ready, &r.Live} {
			if c.probes[k] != nil {
				*to = c.probes[k].result
			}
		}
		results[name] = r
	}
	pp.results = results
	p.checkpoint.markDirty(pp.spec.UID)
}

// Results are the current results of a pod's containers; nil for a pod without
// probes, and for one that was not passed to Sync. The map is shared and must not be
// modified.
func (p *Prober) Results(uid pod.UID) pod.ProbeResults {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pp := p.pods[uid]; pp != nil {
		return pp.results
	}
	return nil
}

// snapshot is what is saved of a pod; nil for one that was forgotten.
func (p *Prober) snapshot(uid pod.UID) pod.ProbeResults { return p.Results(uid) }

// Retain removes what an earlier podd saved of pods that are not named: they are gone.
func (p *Prober) Retain(keep map[pod.UID]bool) { p.checkpoint.retain(keep) }

// Forget removes everything of a removed pod: runs, results, saved results and metrics.
// An unknown pod is no error.
func (p *Prober) Forget(uid pod.UID) {
	p.forget(uid)
	p.checkpoint.remove(uid) // without the lock: a slow disk delays no probe
}

func (p *Prober) forget(uid pod.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pp := p.pods[uid]
	if pp == nil {
		return
	}
	for _, c := range pp.containers {
		p.removeContainerLocked(c)
	}
	delete(p.pods, uid)
	namesake := false // an edited manifest's next generation has the same name
	for _, other := range p.pods {
		namesake = namesake || other.spec.Namespace == pp.spec.Namespace && other.spec.Name == pp.spec.Name
	}
	p.metrics.forget(pp.spec, namesake)
	p.updateExecRateLocked()
}

// execCost is the processor time of one exec probe, with containerd, its shim and
// runc: 20 ms by their clocks, which miss some processes that exit quickly.
const execCost = 30 * time.Millisecond

// updateExecRateLocked determines how many commands the probes run per second, and warns
// if they take more than a tenth of the machine (kubernetes/kubernetes#82440).
func (p *Prober) updateExecRateLocked() {
	rate, commands := 0.0, 0
	for _, pp := range p.pods {
		for _, c := range pp.containers {
			for _, pr := range c.probes {
				if pr != nil && pr.spec.Exec != nil && !pr.stopped {
					rate += 1 / pr.period.Seconds()
					commands++
				}
			}
		}
	}
	p.metrics.execRate.Set(rate)
	bearable := 0.1 * float64(runtime.NumCPU()) / execCost.Seconds()
	switch {
	case !p.execOverload && rate > bearable:
		p.execOverload = true
		p.log.Warn("exec probes take more than a tenth of this machine: each starts a process in its container; "+
			"httpGet, tcpSocket and grpc probes cost next to nothing, longer periods less",
			"probes", commands, "per_second", math.Round(rate*10)/10, "bearable_per_second", math.Round(bearable*10)/10)
	case p.execOverload && rate < 0.8*bearable:
		p.execOverload = false
		p.log.Info("exec probes take less than a tenth of this machine again", "per_second", math.Round(rate*10)/10)
	}
	over := 0.0
	if p.execOverload {
		over = 1
	}
	p.metrics.execOver.Set(over)
}
