package agent

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// completionCheckpoint is the checkpoint of a desired pod that has completed or was
// terminated by the node: it must not run again after a restart of podd, even if the
// runtime forgets it.
type completionCheckpoint struct {
	UID pod.UID `json:"uid"`
	// Source is the pod's source; empty in a file of an older podd.
	Source pod.Source `json:"source,omitempty"`
	// Termination is the node's decision; without a reason the pod ran to completion.
	pod.Termination
	// StartTime is that of the pod.
	StartTime time.Time `json:"startTime,omitzero"`
	// Containers are the last ones of a pod that has ended, as far as its status shows
	// them.
	Containers []pod.Container `json:"containers,omitempty"`
}

// newCompletions stores checkpoints of completed pods in a directory. If a pod's file cannot
// be read, the pod runs again, unless the runtime knows that it has completed.
func newCompletions(dir string) *checkpoints[completionCheckpoint] {
	return newCheckpoints(newCheckpointFiles(dir, "which pod was terminated", func(k *completionCheckpoint) pod.UID { return k.UID }, func(k *completionCheckpoint) error {
		for i := range k.Containers {
			k.Containers[i].State = pod.ContainerExited
		}
		return nil
	}))
}

// endedBefore returns how a pod ended under an earlier podd: by its checkpoint or, if the
// machine has lost that, by what the apiserver shows. Such a pod must not run again.
func (a *Agent) endedBefore(d *pod.Desired) (k completionCheckpoint, ended bool) {
	if k, ended = a.completions.get(d.UID()); ended {
		return k, true
	}
	return endedInAPI(d)
}

// endedInAPI returns how a pod has ended by what the apiserver shows.
func endedInAPI(d *pod.Desired) (k completionCheckpoint, ended bool) {
	shown := &d.Pod.Status
	if d.Source != pod.SourceAPIServer || !pod.IsPhaseTerminal(shown.Phase) {
		return completionCheckpoint{}, false
	}
	k = completionCheckpoint{UID: d.UID(), Source: d.Source}
	if shown.StartTime != nil {
		k.StartTime = shown.StartTime.Time
	}
	if shown.Phase == v1.PodFailed && shown.Reason != "" {
		k.Reason, k.Message = shown.Reason, shown.Message
	}
	return k, true
}

// End terminates a pod for good although it is desired: it becomes Failed with the
// end's reason, and stays so across restarts of podd until its source removes it. The
// first of several ends counts; a later one may only shorten the grace period. A pod
// that has completed, or has no worker (rejected, unknown, gone), is left as it is.
// Any goroutine may call it; it never blocks.
func (a *Agent) End(uid pod.UID, end pod.Termination) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w != nil {
		w.applyEnd(end)
	}
}

// applyEnd passes the node's decision to the worker. decided says that this decision counts
// and no earlier one; changed says that it changes anything: an earlier one may get a
// shorter grace period.
func (w *worker) applyEnd(end pod.Termination) (decided, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, changed := w.mail.WithEnd(end, time.Now())
	if w.finished || !changed {
		return false, false
	}
	decided = w.mail.End == nil && w.mail.Kill == nil
	w.mail.Termination = next
	w.terminatingLocked()
	return decided, true
}

// saveEnd reports the termination of a pod and checkpoints it, once.
func (w *worker) saveEnd(d *pod.Desired, end *pod.Termination) {
	if end == nil || w.reported.endSaved {
		return
	}
	w.reported.endSaved = true
	w.mu.Lock()
	if w.mail.End == nil {
		w.mail.End = end // plan's own decision
	}
	w.mu.Unlock()
	w.agent.cfg.Volumes.Stopping(w.uid)
	if _, saved := w.agent.completions.get(w.uid); saved {
		return // by an earlier podd
	}
	if err := w.agent.completions.save(completionCheckpoint{UID: w.uid, Source: d.Source, Termination: *end, StartTime: w.startTime}); err != nil {
		w.log.Warn("cannot save that the node terminated this pod: a restart of podd forgets it", "reason", end.Reason, "error", err)
	}
	if w.completion.record.Reason != "" {
		return // by what the apiserver has shown
	}
	w.log.Info("node is terminating the pod", "reason", end.Reason, "message", end.Message)
	if eventType := endEvents[end.Reason]; eventType != "" {
		w.agent.cfg.Events.Event(d.Pod, eventType, end.Reason, strings.TrimPrefix(end.Message, rejectedPrefix))
	}
}

// recordOverdue reports that a termination by the node takes too long.
func (w *worker) recordOverdue(v *view) {
	if v.step.Overdue {
		w.agent.cfg.Events.Event(v.granted.Pod, v1.EventTypeWarning, "ExceededGracePeriod",
			"Container runtime did not kill the pod within specified grace period.")
	}
}

// endEvents are the types of events about an end. A node shutdown has none, as in the
// kubelet.
var endEvents = map[string]string{
	pod.ReasonDeadlineExceeded: v1.EventTypeNormal,
	pod.ReasonEvicted:          v1.EventTypeWarning,
	pod.ReasonPreempting:       v1.EventTypeWarning,
	pod.ReasonSandboxLost:      v1.EventTypeWarning,
	pod.ReasonAttachLimit:      v1.EventTypeWarning,
}

// preemptionEnd is the end of a pod that is preempted for a critical one, in the words
// of pkg/kubelet/preemption.
func preemptionEnd() pod.Termination {
	return pod.Termination{
		Reason: pod.ReasonPreempting, Message: "Preempted in order to admit critical pod",
		Condition: &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
		},
	}
}

// attachLimitEnd is the end of a pod with more volumes than the node can still attach,
// in the kubelet's words (KEP-4876). The pod's controller makes another one, and the
// scheduler places that elsewhere.
func attachLimitEnd(err error) pod.Termination {
	return pod.Termination{
		Reason:  pod.ReasonAttachLimit,
		Message: rejectedPrefix + "Node has reached its volume attachment limit, rejecting pod. " + err.Error(),
	}
}

// dropStaleCheckpoints drops the checkpoints of pods that are gone, once it is known which
// pods their source desires and which pods run.
func (a *Agent) dropStaleCheckpoints() {
	if a.readyAtCleanup == len(a.ready) {
		return
	}
	a.readyAtCleanup = len(a.ready)
	for _, k := range a.completions.all() {
		a.dropIfStale(k.UID, k.Source, a.completions.drop)
	}
	for _, c := range a.allocated.all() {
		a.dropIfStale(c.UID, c.Source, a.allocated.drop)
	}
	for _, i := range a.interruptions.all() {
		a.dropIfStale(i.UID, i.Source, a.interruptions.drop)
	}
	for _, s := range a.pendingStarts.all() {
		a.dropIfStale(s.UID, s.Source, a.pendingStarts.drop)
	}
	if a.allSourcesReady() {
		for uid := range a.savedSpecs {
			a.dropIfStale(uid, "", a.accepted.Remove)
		}
		clear(a.savedSpecs)
	}
}

func (a *Agent) dropIfStale(uid pod.UID, source pod.Source, drop func(pod.UID) error) {
	_, runs := a.orphans[uid]
	a.mu.Lock()
	runs = runs || a.workers[uid] != nil
	a.mu.Unlock()
	if runs || a.desired[uid] != nil || !a.mayTerminate(source) {
		return
	}
	if err := drop(uid); err != nil {
		a.log.Warn("cannot remove the checkpoint of a removed pod", "uid", uid, "error", err)
	}
}
