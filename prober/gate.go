package prober

import (
	"context"
	"runtime"
	"time"
)

const (
	// leastExecPace bounds podd/probe-until-success for exec probes.
	leastExecPace = 100 * time.Millisecond
	// starting is how long a command holds its place: what it costs the node
	// is its start, and one that hangs must not hold up the others.
	starting = time.Second
)

// gate bounds the commands that start at the same time. Whoever waits is served
// in the order of arrival, and each probe waits at most once: nobody starves.
type gate struct{ places chan struct{} }

func newGate(n int) *gate {
	if n <= 0 {
		n = 2 * runtime.NumCPU()
	}
	return &gate{places: make(chan struct{}, n)}
}

// enter waits for a place, and returns what gives it back: after a while it does
// so by itself. The function may be called more than once.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	timer := time.AfterFunc(starting, func() { <-g.places })
	return func() {
		if timer.Stop() {
			<-g.places
		}
	}, nil
}
