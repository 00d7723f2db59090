package usage

import (
	"context"
	"sync"
)

// parallelDriverCalls is the number of volumes that one CSI driver is asked about at a time.
const parallelDriverCalls = 8

// driverLimiter bounds the calls to each driver, so that a slow driver delays only its own
// volumes. Its zero value is ready.
type driverLimiter struct {
	mu      sync.Mutex // guards what follows
	drivers map[string]*driverSlots
}

// driverSlots are the slots of a driver that somebody asks, or waits to ask.
type driverSlots struct {
	slots chan struct{}
	users int // guarded by driverLimiter.mu
}

// acquire waits for a slot of a driver. Callers get the slots in the order in which they
// came. If ctx ends first, the error is ctx's cause. For "" it does not wait.
func (a *driverLimiter) acquire(ctx context.Context, driver string) (leave func(), err error) {
	if driver == "" {
		return func() {}, nil
	}
	a.mu.Lock()
	if a.drivers == nil {
		a.drivers = map[string]*driverSlots{}
	}
	d := a.drivers[driver]
	if d == nil {
		d = &driverSlots{slots: make(chan struct{}, parallelDriverCalls)}
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
	case d.slots <- struct{}{}:
		return func() { <-d.slots; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
}
