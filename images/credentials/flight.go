package credentials

import (
	"context"
	"sync"
)

// flights runs one call for each key at a time. Many may wait for one: it goes on while
// anybody does, and ends with the last.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

// flight is one call. answer and err may be read once done is closed.
type flight struct {
	waiting int // guarded by flights.mu
	cancel  context.CancelCauseFunc
	done    chan struct{}
	answer  *answered
	err     error
}

// do returns what a call returns, or ctx's cause. Whoever gives up last cancels the call and
// waits for its end, so that no plugin outlives podd.
func (f *flights) do(ctx context.Context, key string, call func(context.Context) (*answered, error)) (*answered, error) {
	own := f.join(ctx, key, call)
	select {
	case <-own.done:
		return own.answer, own.err
	case <-ctx.Done():
	}
	if f.leave(key, own) {
		own.cancel(context.Cause(ctx))
		<-own.done
	}
	return nil, context.Cause(ctx)
}

// join counts the caller among those who wait for a key's call, and begins it for the first.
func (f *flights) join(ctx context.Context, key string, call func(context.Context) (*answered, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.all[key]; own != nil {
		own.waiting++
		return own
	}
	// The others must get the answer if the one who began gives up.
	shared, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	own := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	if f.all == nil {
		f.all = map[string]*flight{}
	}
	f.all[key] = own
	go func() {
		defer cancel(nil)
		defer close(own.done)
		own.answer, own.err = call(shared)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.removeLocked(key, own)
	}()
	return own
}

// leave says whether the caller was the last. Nobody joins the call any more then.
func (f *flights) leave(key string, own *flight) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own.waiting--
	if own.waiting > 0 {
		return false
	}
	f.removeLocked(key, own)
	return true
}

func (f *flights) removeLocked(key string, own *flight) {
	if f.all[key] == own {
		delete(f.all, key)
	}
}
