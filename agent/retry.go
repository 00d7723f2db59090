package agent

import (
	"podd/agent/plan"
	"podd/internal/pod"
)

// Retry resets every back-off of a pod: of its containers, of its pulls, and after errors
// of their starts. The node decides again about a rejected pod. A completed pod (except
// for an apiserver's, which its controller recreates) runs once more, as if its manifest
// had been removed and added again: it keeps only its logs and restart counts, and is
// admitted again. If podd crashes meanwhile, the pod either stays completed or runs again
// as a whole. Retry returns false for an unknown pod. Any goroutine may call it; it never
// blocks.
func (a *Agent) Retry(uid pod.UID) bool {
	a.mu.Lock()
	w := a.workers[uid]
	_, rejected := a.rejected[uid]
	a.mu.Unlock()
	switch {
	case w != nil:
		w.askRetry()
	case rejected:
		a.notifyFreed(triggerPodUpdated)
	default:
		return false
	}
	return true
}

func (w *worker) askRetry() {
	w.mu.Lock()
	ended := w.finished && !plan.ReplacedByController(w.mail.desired)
	w.mail.retry = true
	w.wakeUrgentLocked()
	w.mu.Unlock()
	if ended {
		w.terminate(whyRerun)
	}
}

const whyRerun = "another run was requested"

// runAgain ends a pod, to be run once more, for which a retry came in the moments between
// its completion, which is shown at once, and the end of its sandbox.
func (w *worker) runAgain(v *view) {
	if w.completion.rerun && v.step.Finished && !plan.ReplacedByController(v.in.desired) {
		w.completion.rerun = false
		w.terminate(whyRerun)
	}
}

// resetBackoff resets what delays the pod's next attempts.
func (w *worker) resetBackoff() {
	w.memory = w.memory.BackOffReset()
	w.reported.backOff = nil
	w.lastSync.failures = 0
	w.agent.cfg.Images.Retry(w.uid)
	w.log.Info("back-off reset on request")
}
