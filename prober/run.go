package prober

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// maxAttempts is the number of attempts within one run of a probe that could not be run.
const maxAttempts = 3

// Reasons of events, upstream's (pkg/kubelet/events).
const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// verdict is the result of one attempt, in upstream's words (pkg/probe).
type verdict string

const (
	success verdict = "success"
	warning verdict = "warning" // a success with something to tell
	failure verdict = "failure"
	unknown verdict = "unknown"
)

// attemptResult is the outcome of one attempt. If err is set, the probe could not be run,
// which counts neither as a success nor as a failure, whatever the verdict.
type attemptResult struct {
	verdict verdict
	message string
	err     error
}

func (a attemptResult) outcome() pod.ProbeResult {
	switch {
	case a.err != nil:
		return pod.ProbeUnknown
	case a.verdict == success, a.verdict == warning:
		return pod.ProbeSucceeded
	}
	return pod.ProbeFailed
}

// job is everything that a run needs.
type job struct {
	pod         *v1.Pod
	container   *v1.Container
	containerID string
	ip          string
	kind        kind
	probe       *v1.Probe
	// timeout bounds the whole run, retries included.
	timeout time.Duration
}

func (pr *probe) job() job {
	return job{
		pod: pr.c.pod.spec, container: pr.c.spec, containerID: pr.c.id, ip: pr.c.pod.ip,
		kind: pr.kind, probe: pr.spec, timeout: seconds(pr.spec.TimeoutSeconds, 1),
	}
}

// runProbe is one run of a probe, from the handler to the next due time.
func (p *Prober) runProbe(ctx context.Context, pr *probe, j job) {
	began := time.Now()
	a := p.runWithRetries(ctx, j)
	ended := time.Now()

	p.mu.Lock()
	pr.cancel = nil
	if pr.stopped || ctx.Err() != nil { // stopped, and nobody's
		p.mu.Unlock()
		return
	}
	outcome := a.outcome()
	pr.metrics.observe(outcome, ended.Sub(began))
	changed, tell := pr.applyOutcome(outcome, began, ended)
	level := pr.changeLogLevel(changed, ended)
	if !pr.stopped {
		wanted, otherwise := pr.next(began, ended)
		pr.due = wanted
		if wanted.Before(otherwise) {
			pr.due = p.cfg.Budget.Reserve(pr.action(), wanted, otherwise)
		}
		p.enqueueLocked(pr)
	}
	if changed {
		p.changedLocked(pr, ended)
	}
	p.mu.Unlock()

	if tell {
		p.recordEvent(j, a)
	}
	if changed {
		p.log.Log(ctx, level, "probe result changed", "pod", j.pod.Namespace+"/"+j.pod.Name, "uid", j.pod.UID,
			"container", j.container.Name, "probe", j.kind.String(), "result", string(a.verdict))
		p.cfg.Waker.Wake(j.pod.UID)
	}
}

// changeLogLevel is the level at which a change is logged: one that follows another within
// a minute is noise.
func (pr *probe) changeLogLevel(changed bool, now time.Time) slog.Level {
	if !changed {
		return slog.LevelDebug
	}
	last := pr.lastChange
	pr.lastChange = now
	if now.Sub(last) < time.Minute {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// changedLocked publishes a new result, which may start the probes that waited for a
// startup probe.
func (p *Prober) changedLocked(pr *probe, now time.Time) {
	p.publishLocked(pr.c.pod)
	if pr.kind == startup {
		p.enqueueReadyLocked(pr.c, now)
		p.updateExecRateLocked()
	}
}

// runWithRetries runs the handler, and retries if it could not be run and there is time
// left.
func (p *Prober) runWithRetries(ctx context.Context, j job) attemptResult {
	deadline := time.Now().Add(j.timeout)
	for i := 1; ; i++ {
		a := p.runHandler(ctx, j)
		j.timeout = time.Until(deadline)
		if a.err == nil || i == maxAttempts || j.timeout <= 0 || ctx.Err() != nil {
			return a
		}
	}
}

// recordEvent emits the event of a run that did not simply succeed.
func (p *Prober) recordEvent(j job, a attemptResult) {
	var reason, message string
	switch {
	case a.err != nil:
		reason, message = reasonUnhealthy, fmt.Sprintf("%s probe errored and resulted in %s state: %v", j.kind, a.verdict, a.err)
	case a.verdict == failure:
		reason, message = reasonUnhealthy, fmt.Sprintf("%s probe failed: %s", j.kind, a.message)
	case a.verdict == warning:
		reason, message = reasonWarning, fmt.Sprintf("%s probe warning: %s", j.kind, a.message)
	default:
		return
	}
	p.cfg.Events.ContainerEvent(j.pod, j.container.Name, v1.EventTypeWarning, reason, message)
}
