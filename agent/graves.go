package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// graves removes the logs of gone pods, each some time after its pod's end: a
// log shipper wants to read the last lines first. Each grave has a stone, a
// small file that a restart of podd finds; the logs' own directory is no record,
// for it may hold the logs of another agent's pods.
type graves struct {
	stones notes[grave]
	poke   chan struct{}

	mu   sync.Mutex // guards pods
	pods []grave    // by due
}

// grave is also what a stone says.
type grave struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       pod.UID   `json:"uid"`
	Due       time.Time `json:"due"`
}

func newGraves(dir string) *graves {
	return &graves{
		stones: notes[grave]{dir: dir, uid: func(g grave) pod.UID { return g.UID }, says: "whose logs are to be removed"},
		poke:   make(chan struct{}, 1),
	}
}

func graveOf(p *v1.Pod, due time.Time) grave {
	return grave{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Due: due}
}

func (g grave) pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, UID: g.UID}}
}

// add makes the grave of a pod that is gone.
func (g *graves) add(what grave) {
	g.mu.Lock()
	g.pods = append(g.pods, what)
	slices.SortStableFunc(g.pods, func(a, b grave) int { return a.Due.Compare(b.Due) })
	g.mu.Unlock()
	select {
	case g.poke <- struct{}{}: // capacity 1
	default:
	}
}

// next takes the first grave that is due, or says when that will be; a zero
// time for never.
func (g *graves) next(now time.Time) (what grave, due time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pods) == 0 {
		return grave{}, time.Time{}, false
	}
	first := g.pods[0]
	if first.Due.After(now) {
		return grave{}, first.Due, false
	}
	g.pods = g.pods[1:]
	return first, time.Time{}, true
}

// run calls remove for each grave when its time has come, until ctx ends.
func (g *graves) run(ctx context.Context, remove func(grave)) {
	for ctx.Err() == nil {
		what, due, ok := g.next(time.Now())
		if ok {
			remove(what)
			continue
		}
		wait(ctx, g.poke, due)
	}
}

// wait blocks until poked, until the time at (never where it is zero), or
// until ctx ends.
func wait(ctx context.Context, poke <-chan struct{}, at time.Time) {
	var alarm <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-poke:
	case <-alarm:
	case <-ctx.Done():
	}
}
