package agent

import "context"

// drainReason is why Drain ends pods.
const drainReason = "all pods of this node are being stopped"

// Drain ends all pods, each as if its source had removed it, and starts none until ctx
// ends; pods that are still desired then start again. The channel is closed once no pod
// of podd's is left, which podd cannot know while the runtime does not respond. Any
// goroutine may call it; it does not block.
func (a *Agent) Drain(ctx context.Context) (drained <-chan struct{}) {
	done := make(chan struct{})
	a.mu.Lock()
	a.drains[done] = true
	a.mu.Unlock()
	a.notifyDrains()
	context.AfterFunc(ctx, func() {
		a.mu.Lock()
		delete(a.drains, done)
		a.mu.Unlock()
		a.notifyDrains()
	})
	return done
}

func (a *Agent) notifyDrains() {
	a.drained.Notify()
}

func (a *Agent) draining() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.drains) > 0
}

// drain ends what runs, and says so once nothing does.
func (a *Agent) drain(ctx context.Context) {
	for uid, g := range a.orphans {
		d := a.desired[uid]
		if d == nil {
			d = a.lastKnown(uid, g)
		}
		a.startWorker(ctx, d, drainReason)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.terminate(drainReason)
	}
	if len(a.workers) > 0 {
		return
	}
	for done, waits := range a.drains {
		if waits {
			close(done)
			a.drains[done] = false
		}
	}
}
