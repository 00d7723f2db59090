package credentials

import (
	"context"
	"sync"
)

// flights runs one call for each key at a time. Many callers may wait for one call: it goes
// on while anybody waits, and ends when the last one gives up.
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

// do returns the result of a call, or ctx's cause. The last caller to give up cancels the
// call and waits for its end, so that no plugin outlives podd.
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

// join adds the caller to those who wait for a key's call. The first one starts it.
func (f *flights) join(ctx context.Context, key string, call func(context.Context) (*answered, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.all[key]; own != nil {
		own.waiting++
		return own
	}
	// The others must get the answer even if the caller that began it gives up.
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

// leave says whether the caller was the last. After that, nobody joins the call any more.
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
