package usage

import (
	"context"
	"sync"
)

// parallelAsks is the number of volumes that one CSI driver is asked about at a time.
const parallelAsks = 8

// asking bounds the questions to each driver, so that a slow driver delays only its own
// volumes. Its zero value is ready.
type asking struct {
	mu      sync.Mutex // guards what follows
	drivers map[string]*asked
}

// asked is a driver that somebody asks, or waits to ask.
type asked struct {
	places chan struct{}
	users  int // guarded by asking.mu
}

// place waits for a place among the callers that ask a driver, in the order in which they
// came. If ctx ends first, the error is ctx's cause. For "" it does not wait.
func (a *asking) place(ctx context.Context, driver string) (leave func(), err error) {
	if driver == "" {
		return func() {}, nil
	}
	a.mu.Lock()
	if a.drivers == nil {
		a.drivers = map[string]*asked{}
	}
	d := a.drivers[driver]
	if d == nil {
		d = &asked{places: make(chan struct{}, parallelAsks)}
		a.drivers[driver] = d
	}
	d.users++
	a.mu.Unlock()
	forget := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if d.users--; d.users == 0 {
			delete(a.drivers, driver)
		}
	}
	select {
	case d.places <- struct{}{}:
		return func() { <-d.places; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
}
