package agent

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// everyPod stands for Config.Admitter where every pod is taken.
type everyPod struct{}

func (everyPod) Admit(*v1.Pod, []*v1.Pod) pod.Verdict { return pod.Verdict{} }

// refusal is why a wanted pod has no worker.
type refusal struct {
	pod.Verdict
	since time.Time
}

// admits asks whether the node takes a pod now. What runs already, or has ended,
// is never refused: it was admitted once, perhaps by an earlier podd.
//
// A refused pod is Failed. One of a file or an HTTP source, which nobody will
// make anew, is asked about again whenever something on the node has ended or
// changed; an apiserver's stays Failed, for its controller makes another.
func (a *Agent) admits(d *pod.Desired) bool {
	uid := d.UID()
	before, refused := a.refusal(uid)
	_, runs := a.orphans[uid]
	if _, ended := a.ends.of(uid); !runs && !ended {
		if refused && (!a.room || before.Reason != "" && d.Source == pod.SourceAPIServer) {
			return false
		}
		if verdict := a.cfg.Admitter.Admit(d.Pod, a.others(uid)); !verdict.Admitted() {
			a.refuse(d, before, verdict)
			return false
		}
	}
	if a.unrefuse(uid) && before.Reason != "" {
		a.cfg.Status.Forget(uid) // it starts afresh
	}
	return true
}

// refuse tells of a refusal, once until it changes, or has those ended that the
// pod is to replace.
func (a *Agent) refuse(d *pod.Desired, before refusal, verdict pod.Verdict) {
	now := time.Now()
	next := refusal{Verdict: verdict, since: before.since}
	if next.since.IsZero() {
		next.since = now
	}
	a.mu.Lock()
	a.refused[d.UID()] = next
	a.mu.Unlock()
	r := pod.Report{Desired: d, Observed: pod.Observed{UID: d.UID(), At: now}, StartTime: next.since, At: now}
	if len(verdict.Preempt) > 0 {
		for _, victim := range verdict.Preempt {
			a.End(victim, preempting())
		}
		r.Waiting = waitingAll(d.Pod, "waiting for pods to end that make room for this one")
		a.cfg.Status.Report(r)
		return
	}
	// The numbers in the message change with every pod that comes or goes.
	if before.Reason != verdict.Reason {
		a.cfg.Events.Event(d.Pod, v1.EventTypeWarning, verdict.Reason, verdict.Message)
		a.log.Info("pod is refused", "pod", d.Name(), "uid", d.UID(), "reason", verdict.Reason, "message", verdict.Message)
	}
	r.Failed, r.Reason, r.Message = true, verdict.Reason, "Pod was rejected: "+verdict.Message
	a.cfg.Status.Report(r)
}

// others are the pods that count against the node beside uid: all that have a
// worker, until they are gone or have run to their end. Of a pod without a
// manifest only the name is known, and it does not count. Any goroutine may call
// it.
func (a *Agent) others(uid pod.UID) []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*v1.Pod, 0, len(a.workers))
	for _, w := range a.workers {
		if w.uid == uid {
			continue
		}
		if p := w.counts(); p != nil {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y *v1.Pod) int { return strings.Compare(string(x.UID), string(y.UID)) })
	return list
}

// counts returns the pod, or nil if it holds nothing of the node.
func (w *worker) counts() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished || len(w.mail.desired.Pod.Spec.Containers) == 0 {
		return nil
	}
	if w.allocation.granted != nil {
		return w.allocation.granted.Pod
	}
	return w.mail.desired.Pod
}

// finish notes whether the pod has run to its end; one that has makes room.
func (w *worker) finish(finished bool) {
	w.mu.Lock()
	changed := w.finished != finished
	w.finished = finished
	w.mu.Unlock()
	w.released = w.released && finished
	if changed && finished {
		w.agent.makeRoom()
	}
}

// makeRoom has refused pods asked about again. Any goroutine may call it.
func (a *Agent) makeRoom() {
	select {
	case a.freed <- struct{}{}: // capacity 1
	default:
	}
}

func (a *Agent) refusal(uid pod.UID) (r refusal, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, refused = a.refused[uid]
	return r, refused
}

// unrefuse forgets that a pod was refused, and says whether it was.
func (a *Agent) unrefuse(uid pod.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, refused := a.refused[uid]
	delete(a.refused, uid)
	return refused
}

// waitingAll has every container of a pod wait.
func waitingAll(p *v1.Pod, message string) map[string]pod.Waiting {
	waiting := make(map[string]pod.Waiting)
	reason := plan.ReasonContainerCreating
	if len(p.Spec.InitContainers) > 0 {
		reason = plan.ReasonPodInitializing
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind != pod.EphemeralContainer {
			waiting[c.Name] = pod.Waiting{Reason: reason, Message: message}
		}
	}
	return waiting
}
