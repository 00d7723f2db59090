package agent

import "podd/internal/pod"

// Retry ends every wait of a pod that stands for caution: the back-off of its
// containers and of its pulls, and of what went wrong as they started; their
// curves begin anew. A pod that was refused is asked about again. One that has
// ended (but an apiserver's, which is another's to make anew) runs once more, as
// if its manifest had gone and come back: its logs and restart counts stay,
// nothing else does, and it is admitted anew. A crash of podd in the middle of
// that leaves it ended, or running whole. Retry returns false for a pod that the
// agent does not know. Any goroutine may call it; it never blocks.
func (a *Agent) Retry(uid pod.UID) bool {
	a.mu.Lock()
	w := a.workers[uid]
	_, refused := a.refused[uid]
	a.mu.Unlock()
	switch {
	case w != nil:
		w.askRetry()
	case refused:
		a.makeRoom()
	default:
		return false
	}
	return true
}

func (w *worker) askRetry() {
	w.mu.Lock()
	ended := w.finished && w.mail.desired.Source != pod.SourceAPIServer
	w.mail.retry = true
	w.orderLocked()
	w.mu.Unlock()
	if ended {
		w.end("it is to run once more")
	}
}

// forgive forgets what holds the pod's next tries back.
func (w *worker) forgive() {
	w.memory = w.memory.Retried()
	w.told.backOff = nil
	w.tries = 0
	w.agent.cfg.Images.Retry(w.uid)
	w.log.Info("back-off of the pod is forgotten, as was asked for")
}
