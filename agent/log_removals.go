package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// logRemovals removes the logs of removed pods after a delay, since a log shipper has
// to read the last lines first. Each removal has a checkpoint, so that a restart of
// podd does not forget it; the log directory cannot serve as one, since it may
// contain the logs of another agent's pods.
type logRemovals struct {
	files checkpointFiles[logRemoval]
	poke  wake.Signal

	mu   sync.Mutex   // guards pods
	pods []logRemoval // by due
}

// logRemoval is also the checkpoint's content.
type logRemoval struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       pod.UID   `json:"uid"`
	Due       time.Time `json:"due"`
}

func newLogRemovals(dir string) *logRemovals {
	return &logRemovals{
		files: newCheckpointFiles(dir, "when the logs of a pod are to be removed", func(r *logRemoval) pod.UID { return r.UID }, nil),
		poke:  wake.New(),
	}
}

func logRemovalOf(p *v1.Pod, due time.Time) logRemoval {
	return logRemoval{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Due: due}
}

func (r logRemoval) pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: r.UID}}
}

// add schedules the removal of a removed pod's logs.
func (g *logRemovals) add(what logRemoval) {
	g.mu.Lock()
	g.pods = append(g.pods, what)
	slices.SortStableFunc(g.pods, func(a, b logRemoval) int { return a.Due.Compare(b.Due) })
	g.mu.Unlock()
	g.poke.Notify()
}

// next takes the first removal that is due, or returns when one will be; a zero time
// for never.
func (g *logRemovals) next(now time.Time) (what logRemoval, due time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pods) == 0 {
		return logRemoval{}, time.Time{}, false
	}
	first := g.pods[0]
	if first.Due.After(now) {
		return logRemoval{}, first.Due, false
	}
	g.pods = g.pods[1:]
	return first, time.Time{}, true
}

// run calls remove for each removal when it is due, until ctx ends.
func (g *logRemovals) run(ctx context.Context, remove func(logRemoval)) {
	for ctx.Err() == nil {
		what, due, ok := g.next(time.Now())
		if ok {
			remove(what)
			continue
		}
		wake.Until(ctx, g.poke, due)
	}
}
