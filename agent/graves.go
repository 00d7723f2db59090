package agent

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// graves removes the logs of gone pods, each some time after its pod's end: a
// log shipper wants to read the last lines first.
type graves struct {
	poke chan struct{}

	mu   sync.Mutex // guards pods
	pods []grave    // oldest first: the retention is the same for all
}

type grave struct {
	pod *v1.Pod
	due time.Time
}

func newGraves() *graves { return &graves{poke: make(chan struct{}, 1)} }

func (g *graves) add(p *v1.Pod, due time.Time) {
	g.mu.Lock()
	g.pods = append(g.pods, grave{p, due})
	g.mu.Unlock()
	select {
	case g.poke <- struct{}{}: // capacity 1
	default:
	}
}

// next takes the first grave that is due, or says when that will be; a zero
// time for never.
func (g *graves) next(now time.Time) (p *v1.Pod, due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pods) == 0 {
		return nil, time.Time{}
	}
	first := g.pods[0]
	if first.due.After(now) {
		return nil, first.due
	}
	g.pods = g.pods[1:]
	return first.pod, time.Time{}
}

// run calls remove for each pod when its time has come, until ctx ends.
func (g *graves) run(ctx context.Context, remove func(*v1.Pod)) {
	for ctx.Err() == nil {
		p, due := g.next(time.Now())
		if p != nil {
			remove(p)
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
