package agent

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// The words of the kubelet's node shutdown manager (pkg/kubelet/nodeshutdown).
const (
	reasonNodeShutdown       = "NodeShutdown"
	nodeShutdownRejection    = "Pod was rejected as the node is shutting down."
	nodeShutdownTermination  = "Pod was terminated in response to imminent node shutdown."
	whyShutdown              = "the machine is shutting down"
	whyInterruptedByShutdown = "the machine went down while the pod was being stopped: it starts over"
)

// HoldStarts keeps pods from being started until ctx ends. A pod of an apiserver that is new
// meanwhile is rejected, as by the kubelet; others wait. Any goroutine may call it; it does not
// block.
func (a *Agent) HoldStarts(ctx context.Context) {
	a.mu.Lock()
	a.holds++
	a.mu.Unlock()
	context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.holds--
		a.mu.Unlock()
		a.notifyDrains()
	})
}

func (a *Agent) holdsStarts() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holds > 0
}

// hold rejects a new pod of an apiserver while starts are held: its controller makes another one
// elsewhere. Any other pod waits.
func (a *Agent) hold(c plan.Candidate) {
	if !plan.ReplacedByController(c.Desired) || c.Ended || c.Rejected != nil {
		return
	}
	a.cfg.Admitter.CountRejection(reasonNodeShutdown)
	a.reject(c.Desired, rejection{}, pod.Verdict{Reason: reasonNodeShutdown, Message: nodeShutdownRejection})
}

// ShutDown ends a pod because the machine shuts down, within the grace period or its own, if that
// is shorter. A pod of an apiserver becomes Failed. Any other ends as if its source had removed it,
// keeps its logs and restart counts, and starts again when nothing holds starts: after the boot,
// or after a shutdown that was called off. A pod that has completed stays as it is, also if podd has
// not yet seen that. ShutDown does not block, and Released says when the pod has ended. Any
// goroutine may call it.
func (a *Agent) ShutDown(uid pod.UID, within time.Duration) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail.shutDownWithin = &within
	if w.interrupt != nil {
		w.interrupt(errTerminating) // the next sync decides
	}
	w.wakeUrgentLocked()
}

// beginShutdown ends the pod if that was requested and the sync has not found that it ends already.
// It reports whether this sync is over.
func (w *worker) beginShutdown(v *view) bool {
	within := v.in.shutDownWithin
	if within == nil || v.in.Kill != nil || v.step.Completed {
		return false
	}
	grace := min(plan.GracePeriod(v.granted.Pod), *within)
	switch end := cmp.Or(v.in.End, v.step.End); {
	case end != nil:
		w.applyEnd(pod.Termination{Reason: end.Reason, Grace: &grace}) // sooner, for its own reason
		return false
	case plan.ReplacedByController(v.in.desired):
		w.applyEnd(nodeShutdownEnd(grace))
	default:
		if err := w.agent.interruptions.save(interruption{UID: w.uid, Source: v.in.desired.Source}); err != nil {
			w.log.Warn("cannot save that the shutdown of the machine ends this pod: if the machine loses power now, the pod may count as completed", "error", err)
		}
		w.mu.Lock()
		w.shutDown = true
		w.mu.Unlock()
		w.terminateWithin(grace, whyShutdown)
	}
	return true
}

// returnsAfterShutdown says that a shutdown of the machine ends the pod. Its logs are still its
// own when it starts again. If it is no longer desired by the next start of podd, they are removed
// then: their removal has a checkpoint.
func (w *worker) returnsAfterShutdown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shutDown
}

// nodeShutdownEnd is the end of a pod of an apiserver.
func nodeShutdownEnd(grace time.Duration) pod.Termination {
	return pod.Termination{
		Reason: pod.ReasonNodeShutdown, Message: nodeShutdownTermination, Grace: &grace,
		Condition: &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: nodeShutdownTermination,
		},
	}
}

// interruption is the checkpoint of a pod that the node's shutdown ends and that could otherwise
// count as completed if the machine lost power before all of it was removed: its containers may
// have exited by then, and none of them would be started again.
type interruption struct {
	UID    pod.UID    `json:"uid"`
	Source pod.Source `json:"source,omitempty"`
}

// newInterruptions stores interruptions in a directory, durably: the runtime's record of an exit is
// durable, too.
func newInterruptions(dir string) *checkpoints[interruption] {
	files := newCheckpointFiles(dir, "which pods a shutdown of the machine was ending", func(i *interruption) pod.UID { return i.UID }, nil)
	files.dir.Durable = true
	return newCheckpoints(files)
}

// ReleasedChanges returns a channel that receives when a pod may have been released, and a
// function that ends that.
func (a *Agent) ReleasedChanges() (changes <-chan struct{}, stop func()) {
	return a.released.Subscribe()
}
