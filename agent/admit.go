package agent

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// admitAll is the default of Config.Admitter: it admits every pod.
type admitAll struct{}

func (admitAll) Admit(*v1.Pod, []*v1.Pod) pod.Verdict { return pod.Verdict{} }
func (admitAll) CountRejection(string)                {}

// rejectedPrefix is how the message of a rejected pod begins; that of the event begins
// without it, as the kubelet's (rejectPod).
const rejectedPrefix = "Pod was rejected: "

// rejection is why a desired pod has no worker.
type rejection struct {
	pod.Verdict
	since time.Time
}

// candidate is what is known of a desired pod without a worker.
func (a *Agent) candidate(d *pod.Desired) plan.Candidate {
	c := plan.Candidate{Desired: d}
	_, c.Runs = a.orphans[d.UID()]
	_, c.Ended = a.endedBefore(d)
	if before, rejected := a.rejection(d.UID()); rejected {
		c.Rejected = &before.Verdict
	}
	return c
}

// admits says whether the node admits a candidate now; plan decides when to ask.
func (a *Agent) admits(c plan.Candidate) bool {
	d, uid := c.Desired, c.Desired.UID()
	before, _ := a.rejection(uid)
	switch c.Admission(a.admissionDue) {
	case plan.Rejected:
		return false
	case plan.AskNode:
		verdict := a.cfg.Admitter.Admit(a.lastGranted(d).Pod, append(a.countedPods(uid), a.countedOrphans(uid)...))
		if !verdict.Admitted() {
			a.reject(d, before, verdict)
			return false
		}
		if verdict.Warning != "" {
			a.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "HostPortOverlap", verdict.Warning)
			a.log.Warn("pod shares a port of the node", "pod", d.Name(), "uid", uid, "message", verdict.Warning)
		}
		a.metrics.resizes.admitted(d.Pod)
	case plan.Admitted:
		if !c.Ended { // a kubelet that restarts also admits running pods again
			a.metrics.resizes.admitted(d.Pod)
		}
	}
	if a.forgetRejection(uid) && before.Reason != "" {
		a.cfg.Status.Forget(uid) // it starts over
	}
	return true
}

// reject reports a rejection, or what the pod waits for, once until the reason changes.
// It terminates the pods that are preempted for this pod.
func (a *Agent) reject(d *pod.Desired, before rejection, verdict pod.Verdict) {
	now := time.Now()
	next := rejection{Verdict: verdict, since: before.since}
	if next.since.IsZero() {
		next.since = now
	}
	a.mu.Lock()
	a.rejected[d.UID()] = next
	a.mu.Unlock()
	r := pod.Report{Desired: d, Observed: pod.Observed{UID: d.UID(), At: now}, StartTime: next.since, At: now}
	if verdict.Reason == "" {
		message := verdict.PendingReason
		if len(verdict.Preempt) > 0 {
			message = "waiting for preempted pods to terminate"
		}
		a.preempt(verdict)
		r.Waiting = waitingAll(d.Pod, message)
		a.cfg.Status.Report(r)
		return
	}
	a.cfg.ResourceClaims.Drop(d.UID()) // what it had before it was rejected, after a reboot
	// The numbers in the message change with every pod that starts or terminates.
	if before.Reason != verdict.Reason {
		a.cfg.Events.Event(d.Pod, v1.EventTypeWarning, verdict.Reason, verdict.Message)
		a.log.Info("pod rejected", "pod", d.Name(), "uid", d.UID(), "reason", verdict.Reason, "message", verdict.Message)
	}
	r.Failed, r.Reason, r.Message = true, verdict.Reason, rejectedPrefix+verdict.Message
	a.cfg.Status.Report(r)
}

// countedPods are the pods that count against the node besides uid: every pod that has a
// worker, until it is removed or has completed. A pod that has lost both its manifest and
// its spec does not count. Any goroutine may call it.
func (a *Agent) countedPods(uid pod.UID) []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*v1.Pod, 0, len(a.workers))
	for _, w := range a.workers {
		if w.uid == uid {
			continue
		}
		if p := w.countedPod(); p != nil {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y *v1.Pod) int { return strings.Compare(string(x.UID), string(y.UID)) })
	return list
}

// Allocated returns the pods that use resources of the node, sorted by namespace and name.
// Each has the resources that the node allocated to it. Callers must not modify the pods. Any
// goroutine may call it.
func (a *Agent) Allocated() []*v1.Pod {
	all := a.countedPods("")
	slices.SortFunc(all, func(x, y *v1.Pod) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return all
}

// countedPod returns the pod, or nil if it uses no resources of the node.
func (w *worker) countedPod() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished || len(w.mail.desired.Pod.Spec.Containers) == 0 {
		return nil
	}
	if w.allocation.Granted != nil {
		return w.allocation.Granted.Pod
	}
	return w.mail.desired.Pod
}

// finish records whether the pod has completed, which frees its resources.
func (w *worker) finish(finished bool) {
	w.mu.Lock()
	changed := w.finished != finished
	w.finished = finished
	w.released = w.released && finished
	w.mu.Unlock()
	if changed && finished {
		w.agent.notifyFreed(triggerPodTerminated)
	}
}

// notifyFreed makes Run retry the admission of rejected pods and deferred resizes. trigger
// says why. If it is called several times before Run wakes, the last trigger counts. Any
// goroutine may call it.
func (a *Agent) notifyFreed(trigger string) {
	a.freedBy.Store(&trigger)
	a.freed.Notify()
}

// lastFreed is the trigger of the last notifyFreed.
func (a *Agent) lastFreed() string { return *a.freedBy.Load() }

// RetryAdmission has the admission of rejected pods retried, because what it depends on has
// changed. Any goroutine may call it; it never blocks.
func (a *Agent) RetryAdmission() { a.notifyFreed(triggerPodUpdated) }

func (a *Agent) rejection(uid pod.UID) (r rejection, rejected bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, rejected = a.rejected[uid]
	return r, rejected
}

// forgetRejection forgets that a pod was rejected, and says whether it was.
func (a *Agent) forgetRejection(uid pod.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, rejected := a.rejected[uid]
	delete(a.rejected, uid)
	return rejected
}

// waitingAll reports every container of a pod as waiting.
func waitingAll(p *v1.Pod, message string) map[string]pod.Waiting {
	waiting := make(map[string]pod.Waiting)
	reason := pod.ReasonContainerCreating
	if len(p.Spec.InitContainers) > 0 {
		reason = pod.ReasonPodInitializing
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind != pod.EphemeralContainer {
			waiting[c.Name] = pod.Waiting{Reason: reason, Message: message}
		}
	}
	return waiting
}
