package prober

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/budget"
	"podd/internal/pod"
)

// kind is one of the three probes of a container.
type kind int

const (
	startup kind = iota
	readiness
	liveness
	kinds // how many there are
)

// String is upstream's word, in metrics and events.
func (k kind) String() string { return [...]string{"Startup", "Readiness", "Liveness"}[k] }

func (k kind) of(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}

const (
	// failureGrace is the age of a container before which its failures are not reported:
	// upstream's kubelet observes a container after up to as long.
	failureGrace = time.Second
	// maxFastTime bounds the fast runs of podd/probe-until-success: after that the probe
	// runs once per period.
	maxFastTime = 10 * time.Minute
)

// probe is one kind of probe of one container. It is at rest, in the queue, or
// running:
//
//	rest ──enqueue──► queued ──due──► running ──► queued, or rest (stopped)
//
// Its owner is the Prober's mutex.
type probe struct {
	kind kind
	spec *v1.Probe
	c    *container

	period, delay    time.Duration
	successThreshold int // thresholds
	failureThreshold int
	// fastPeriod is the time between runs until the first success
	// (podd/probe-until-success); 0 means period.
	fastPeriod time.Duration

	// base is the time from which periods are counted.
	base time.Time
	due  time.Time
	// index in the queue; -1 when not queued.
	index int
	// cancel cancels the run in progress; nil for none.
	cancel context.CancelFunc
	// stopped means no more runs for this container.
	stopped bool

	result pod.ProbeResult
	// last and resultRun are the last outcome, and how often in a row it counted (the
	// kubelet's resultRun).
	last      pod.ProbeResult
	resultRun int
	// lastChange is when the result last changed.
	lastChange time.Time
	// succeeded: once at least.
	succeeded bool
	// lastCountedPeriod is the last period with a failure that counted; lastEventPeriod is
	// the last period with an event. Both are from before the first success.
	lastCountedPeriod, lastEventPeriod int64

	metrics probeMetrics
}

func newProbe(k kind, spec *v1.Probe, c *container, fastPeriod time.Duration) *probe {
	pr := &probe{
		kind: k, spec: spec, c: c, index: -1, lastEventPeriod: -1,
		period: seconds(spec.PeriodSeconds, 10), delay: seconds(spec.InitialDelaySeconds, 0),
		successThreshold: atLeastOne(spec.SuccessThreshold, 1), failureThreshold: atLeastOne(spec.FailureThreshold, 3),
	}
	if k != liveness {
		pr.fastPeriod = fastPeriod
	}
	if spec.Exec != nil && pr.fastPeriod > 0 {
		pr.fastPeriod = max(pr.fastPeriod, minExecFastPeriod)
	}
	return pr
}

// seconds and atLeastOne apply the API's defaults to a probe that was not defaulted.
func seconds(n, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

func atLeastOne(n int32, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return int(n)
}

// scheduleFirst sets the first run of a probe that may run from now on. spread is the
// probe's offset, from 0 to 1, in the period over which the first runs for containers of an
// earlier podd are spread; negative for a container that this podd started.
func (pr *probe) scheduleFirst(now time.Time, spread float64) {
	first := later(pr.c.startedAt.Add(pr.delay), now)
	switch {
	case spread >= 0:
		window := pr.period
		if pr.kind != liveness && pr.result == pod.ProbeUnknown {
			window = min(window, 2*time.Second) // somebody waits for it
		}
		first = later(first, now.Add(time.Duration(spread*float64(window))))
	case pr.kind == liveness:
		first = later(first, now.Add(pr.period))
	}
	pr.due, pr.base = first, first
}

// periodsUntil is the number of periods between the base and t.
func (pr *probe) periodsUntil(t time.Time) int64 { return int64(t.Sub(pr.base) / pr.period) }

// next is when to run again after a run from began to ended. A fastPeriod may want an
// earlier run than the period does: that needs a place in the node's budget.
func (pr *probe) next(began, ended time.Time) (wanted, otherwise time.Time) {
	tick := pr.base.Add(time.Duration(pr.periodsUntil(began)+1) * pr.period)
	settled := pr.c.startedAt.Add(failureGrace)
	if !pr.succeeded && pr.kind != liveness && began.Before(settled) {
		tick = earlier(tick, settled)
	}
	otherwise = later(tick, ended) // one tick missed is made up for, as a time.Ticker does
	if pr.succeeded || pr.fastPeriod == 0 || began.Sub(pr.base) >= maxFastTime {
		return otherwise, otherwise
	}
	return later(earlier(tick, began.Add(pr.fastPeriod)), ended), otherwise
}

// action is what a run is in the node's budget.
func (pr *probe) action() budget.Action {
	if pr.spec.Exec != nil {
		return budget.ExecProbe
	}
	return budget.Probe
}

// applyOutcome applies the outcome of a run. changed says that the published result
// changed; tell says that a failure is worth an event.
//
// Before the first success, the n-th failure counts if it ended n periods after the
// first run or later: one that hung took its periods, too. For a liveness probe,
// which runs once per period at most, each counts.
func (pr *probe) applyOutcome(outcome pod.ProbeResult, began, ended time.Time) (changed, tell bool) {
	counts, tell := true, true
	if outcome != pod.ProbeSucceeded && !pr.succeeded {
		period := pr.periodsUntil(began)
		if tell = period > pr.lastEventPeriod && (pr.kind == liveness || !began.Before(pr.c.startedAt.Add(failureGrace))); tell {
			pr.lastEventPeriod = period
		}
		over := pr.periodsUntil(ended)
		counts = pr.kind == liveness || over > pr.lastCountedPeriod
		if outcome == pod.ProbeFailed {
			pr.lastCountedPeriod = max(pr.lastCountedPeriod, over)
		}
	}
	if outcome == pod.ProbeUnknown {
		return false, tell
	}
	pr.succeeded = pr.succeeded || outcome == pod.ProbeSucceeded
	if pr.last != outcome {
		pr.last, pr.resultRun = outcome, 0
	}
	if counts {
		pr.resultRun++
	}
	if outcome == pod.ProbeFailed && pr.resultRun < pr.failureThreshold || outcome == pod.ProbeSucceeded && pr.resultRun < pr.successThreshold {
		return false, tell
	}
	pr.stopped = pr.kind == startup || pr.kind == liveness && outcome == pod.ProbeFailed
	changed = pr.result != outcome
	pr.result = outcome
	return changed, tell || changed // what follows from a failure has it in the events
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
