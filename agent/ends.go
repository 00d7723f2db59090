package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// ends remembers which wanted pods have run to their end, or were ended by the
// node for good, each in a small file as long as the pod is there: neither a
// restart of podd nor a runtime that forgets them must start them again.
type ends struct {
	files notes[kept]

	mu   sync.Mutex // guards pods
	pods map[pod.UID]kept
}

// kept is what a file of ends says. It is not changed once it is stored.
type kept struct {
	UID pod.UID `json:"uid"`
	// Source is who names the pod; empty in a file of an older podd.
	Source pod.Source `json:"source,omitempty"`
	// End is the node's decision; without a reason there was none: the pod ran to
	// its end.
	pod.End
	// StartTime is the pod's.
	StartTime time.Time `json:"startTime,omitzero"`
	// Containers are the last ones of a pod that ran to its end, as far as a
	// status shows them.
	Containers []pod.Container `json:"containers,omitempty"`
}

func newEnds(dir string) *ends {
	return &ends{
		files: notes[kept]{dir: dir, uid: func(k kept) pod.UID { return k.UID }, says: "which pod was ended"},
		pods:  make(map[pod.UID]kept),
	}
}

// of returns what is remembered of a pod's end.
func (e *ends) of(uid pod.UID) (k kept, ended bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k, ended = e.pods[uid]
	return k, ended
}

// all lists what is remembered.
func (e *ends) all() []kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.pods))
}

// keep remembers a pod's end. An error says that a restart will forget it.
func (e *ends) keep(k kept) error {
	e.mu.Lock()
	e.pods[k.UID] = k
	e.mu.Unlock()
	return e.files.write(k)
}

// drop forgets a pod's end; none is no error.
func (e *ends) drop(uid pod.UID) error {
	e.mu.Lock()
	_, known := e.pods[uid]
	delete(e.pods, uid)
	e.mu.Unlock()
	if !known {
		return nil
	}
	return e.files.remove(uid)
}

// read takes up what an earlier podd wrote. A pod whose file cannot be read
// starts again, unless the runtime knows that it ended.
func (e *ends) read() error {
	found, err := e.files.read()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range found {
		for i := range k.Containers {
			k.Containers[i].State = pod.ContainerExited
		}
		e.pods[k.UID] = k
	}
	return err
}

// End stops a pod for good although its source wants it: it becomes Failed with
// the end's reason, and stays so over restarts of podd until its source takes it
// away. Of several ends the first counts; a later one may only shorten the grace
// period. A pod without a worker (refused, unknown, gone) or one that has run to
// its end is left as it is. Any goroutine may call it; it never blocks.
func (a *Agent) End(uid pod.UID, end pod.End) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w != nil {
		w.endFor(end)
	}
}

// endFor leaves the node's decision for the worker.
func (w *worker) endFor(end pod.End) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.finished:
		return
	case w.mail.kill != nil:
		if end.Grace == nil || *end.Grace >= w.mail.kill.Grace {
			return
		}
		w.mail.kill = &plan.Kill{Grace: *end.Grace, Why: end.Reason}
	case w.mail.end != nil:
		if end.Grace == nil || w.mail.end.Grace != nil && *end.Grace >= *w.mail.end.Grace {
			return
		}
		shorter := *w.mail.end
		shorter.Grace = end.Grace
		w.mail.end = &shorter
	default:
		if c := end.Condition; c != nil && c.LastTransitionTime.IsZero() {
			dated := *c
			dated.LastTransitionTime = metav1.Now()
			end.Condition = &dated
		}
		w.mail.end = &end
	}
	if w.interrupt != nil {
		w.interrupt(errEnded)
	}
	w.orderLocked()
}

// keepEnd makes the end of a pod known, once: to the world, and to the podd
// after this one.
func (w *worker) keepEnd(d *pod.Desired, end *pod.End) {
	if end == nil || w.told.end {
		return
	}
	w.told.end = true
	w.mu.Lock()
	if w.mail.end == nil {
		w.mail.end = end // plan's own decision
	}
	w.mu.Unlock()
	if _, told := w.agent.ends.of(w.uid); told {
		return // by an earlier podd
	}
	if err := w.agent.ends.keep(kept{UID: w.uid, Source: d.Source, End: *end, StartTime: w.startTime}); err != nil {
		w.log.Warn("a restart of podd will forget that the node ended this pod", "reason", end.Reason, "error", err)
	}
	w.log.Info("the node ends the pod", "reason", end.Reason, "message", end.Message)
	if eventType := endEvents[end.Reason]; eventType != "" {
		w.agent.cfg.Events.Event(d.Pod, eventType, end.Reason, end.Message)
	}
}

// tellOverdue says, once, that the containers of a pod which the node ended have
// outlived its grace period by half of it, at least by 10 s
// (pkg/kubelet/pod_workers.go, killPodNow).
func (w *worker) tellOverdue(v *view, now time.Time) {
	end := v.step.End
	if end == nil || w.told.overdue || end.Reason != pod.ReasonEvicted && end.Reason != pod.ReasonPreempting {
		return
	}
	if w.overdue.IsZero() {
		grace := plan.GracePeriod(v.in.desired.Pod)
		if end.Grace != nil {
			grace = *end.Grace
		}
		w.overdue = now.Add(max(grace+grace/2, 10*time.Second))
	}
	switch {
	case len(v.step.Stop)+len(v.step.StopSandboxes) == 0:
		w.told.overdue = true
	case w.overdue.After(now):
		v.step.WakeAt = earliest(v.step.WakeAt, w.overdue)
	default:
		w.told.overdue = true
		w.agent.cfg.Events.Event(v.in.desired.Pod, v1.EventTypeWarning, "ExceededGracePeriod",
			"Container runtime did not kill the pod within specified grace period.")
	}
}

// endEvents are the types of the events that tell of an end. A shutdown of the
// node has none, as in the kubelet.
var endEvents = map[string]string{
	pod.ReasonDeadlineExceeded: v1.EventTypeNormal,
	pod.ReasonEvicted:          v1.EventTypeWarning,
	pod.ReasonPreempting:       v1.EventTypeWarning,
	pod.ReasonSandboxLost:      v1.EventTypeWarning,
}

// preempting is the end of a pod that makes room for a critical one, in the
// words of pkg/kubelet/preemption.
func preempting() pod.End {
	return pod.End{
		Reason: pod.ReasonPreempting, Message: "Preempted in order to admit critical pod",
		Condition: &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
		},
	}
}

// forgetEnds drops what is kept of pods that are not there any more, each once
// everything is known that its source wants and that runs.
func (a *Agent) forgetEnds() {
	if a.forgot == len(a.spoken) {
		return
	}
	a.forgot = len(a.spoken)
	for _, k := range a.ends.all() {
		_, runs := a.orphans[k.UID]
		a.mu.Lock()
		runs = runs || a.workers[k.UID] != nil
		a.mu.Unlock()
		if runs || a.wanted[k.UID] != nil || !a.mayEnd(k.Source) {
			continue
		}
		if err := a.ends.drop(k.UID); err != nil {
			a.log.Warn("the end of a pod long gone stays noted", "uid", k.UID, "error", err)
		}
	}
}
