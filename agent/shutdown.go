package agent

import (
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
// or after a shutdown that was called off. A pod that has completed stays as it is. ShutDown does
// not block, and Released says when the pod has ended. Any goroutine may call it.
func (a *Agent) ShutDown(uid pod.UID, within time.Duration) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return
	}
	p := w.countedPod()
	if p == nil {
		return
	}
	grace := min(plan.GracePeriod(p), within)
	if d := w.desired(); plan.ReplacedByController(d) {
		w.applyEnd(nodeShutdownEnd(grace))
		return
	}
	w.saveInterruption(p)
	w.mu.Lock()
	w.shutDown = true
	w.mu.Unlock()
	w.terminateWithin(grace, whyShutdown)
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

// interruption is the checkpoint of a pod that the node's shutdown ends and that would otherwise
// count as completed if the machine lost power before all of it was removed: its containers may
// have exited by then, and none of them would be started again.
type interruption struct {
	UID    pod.UID    `json:"uid"`
	Source pod.Source `json:"source,omitempty"`
}

func newInterruptions(dir string) *checkpoints[interruption] {
	return newCheckpoints(newCheckpointFiles(dir, "which pods a shutdown of the machine was ending", func(i *interruption) pod.UID { return i.UID }, nil))
}

// saveInterruption checkpoints that the pod has not completed, whatever its containers will say.
func (w *worker) saveInterruption(p *v1.Pod) {
	if p.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return
	}
	if err := w.agent.interruptions.save(interruption{UID: w.uid, Source: w.desired().Source}); err != nil {
		w.log.Warn("cannot save that the shutdown of the machine ends this pod: if the machine loses power now, the pod may count as completed", "error", err)
	}
}

// ReleasedChanges returns a channel that receives when a pod may have been released, and a
// function that ends that.
func (a *Agent) ReleasedChanges() (changes <-chan struct{}, stop func()) {
	return a.released.Subscribe()
}
