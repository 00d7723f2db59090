package credentials

import (
	"context"
	"sync"
)

// sharedCalls runs one call for each key at a time. Many callers may wait for one call: it goes
// on while anybody waits, and ends when the last one gives up.
type sharedCalls struct {
	mu    sync.Mutex
	byKey map[string]*sharedCall
}

// sharedCall is one call. answer and err may be read once done is closed.
type sharedCall struct {
	waiting int // guarded by sharedCalls.mu
	cancel  context.CancelCauseFunc
	done    chan struct{}
	answer  *pluginResponse
	err     error
}

// do returns the result of a call, or ctx's cause. The last caller to give up cancels the
// call and waits for its end, so that no plugin outlives podd.
func (f *sharedCalls) do(ctx context.Context, key string, call func(context.Context) (*pluginResponse, error)) (*pluginResponse, error) {
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
func (f *sharedCalls) join(ctx context.Context, key string, call func(context.Context) (*pluginResponse, error)) *sharedCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.byKey[key]; own != nil {
		own.waiting++
		return own
	}
	// The others must get the answer even if the caller that began it gives up.
	shared, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	own := &sharedCall{waiting: 1, cancel: cancel, done: make(chan struct{})}
	if f.byKey == nil {
		f.byKey = map[string]*sharedCall{}
	}
	f.byKey[key] = own
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
func (f *sharedCalls) leave(key string, own *sharedCall) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own.waiting--
	if own.waiting > 0 {
		return false
	}
	f.removeLocked(key, own)
	return true
}

func (f *sharedCalls) removeLocked(key string, own *sharedCall) {
	if f.byKey[key] == own {
		delete(f.byKey, key)
	}
}
