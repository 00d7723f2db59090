package dra

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

var errStopped = errors.New("the pod is being stopped")

// answers has a fake answer both calls by an error; nil is for a response that says nothing of
// the claims, and a nil function for what is usual.
func (f *fake) answers(how func(ctx context.Context) error) {
	f.set(func() {
		f.prepare, f.unprepare = nil, nil
		if how == nil {
			return
		}
		f.prepare = func(ctx context.Context, _ *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
			return &drapb.NodePrepareResourcesResponse{}, how(ctx)
		}
		f.unprepare = func(ctx context.Context, _ *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
			return &drapb.NodeUnprepareResourcesResponse{}, how(ctx)
		}
	})
}

// hangs is an answer that comes when the caller has given up.
func hangs(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// obstruct has the checkpoint not be written, until clear is called.
func (r *rig) obstruct() (clear func()) {
	r.t.Helper()
	kept := r.checkpoint.Path + ".kept"
	if err := os.Rename(r.checkpoint.Path, kept); err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.checkpoint.Path, "full"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(r.checkpoint.Path); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Whatever a call ends with, the next one about its claims finds them free: that of the same
// pod, and that of another.
func TestTheNextCallGetsThroughAfterOneThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		answer     func(ctx context.Context) error // of the driver
		stop       time.Duration                   // when the pod is stopped
		obstructed bool                            // the checkpoint cannot be written
		gone       bool                            // the driver is not registered any more
		want       string                          // the error
		after      time.Duration
	}{
		"the driver refuses":      {answer: func(context.Context) error { return errors.New("not now") }, want: "PrepareResources: not now"},
		"the driver says nothing": {answer: func(context.Context) error { return nil }, want: "PrepareResources skipped 2 ResourceClaims"},
		"the driver hangs":        {answer: hangs, want: "PrepareResources: context deadline exceeded", after: 45 * time.Second},
		"the pod is stopped":      {answer: hangs, stop: time.Second, want: errStopped.Error(), after: time.Second},
		"the disk is in the way":  {obstructed: true, want: "checkpoint ResourceClaim state: "},
		"the driver is gone":      {gone: true, want: "DRA driver gpu.example.com is not registered"},
	} {
		for _, call := range []string{"Prepare", "Unprepare"} {
			for _, next := range []string{"Prepare", "Unprepare", "another pod's Prepare"} {
				t.Run(name+", "+call+", "+next, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r, f := newRig(t, nil), newFake(gpu)
						defer func() { r.stop() }()
						r.plug(f)
						one, other := aPod("one", "a", "b"), aPod("other", "b", "a")
						r.api.add("a", "c1", gpu, one, other)
						r.api.add("b", "c2", gpu, one, other)
						do := func(ctx context.Context, call string) error {
							switch call {
							case "Prepare":
								return r.Prepare(ctx, one)
							case "Unprepare":
								return r.Unprepare(ctx, one.UID)
							}
							return r.Prepare(ctx, other)
						}
						if call == "Unprepare" {
							r.prepares(one)
						}
						f.answers(c.answer)
						clear := func() {}
						if c.obstructed {
							clear = r.obstruct()
						}
						if c.gone {
							r.Deregister(gpu, endpointOf(f))
						}
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						if c.stop > 0 {
							time.AfterFunc(c.stop, func() { cancel(errStopped) })
						}
						began := time.Now()
						if err := do(ctx, call); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.want)) || time.Since(began) != c.after {
							t.Errorf("got %v after %v, want %q after %v", err, time.Since(began), c.want, c.after)
						}
						f.answers(nil)
						clear()
						if c.gone {
							f = newFake(gpu)
							r.plug(f)
						}
						soon, cancelNext := context.WithTimeout(t.Context(), time.Minute)
						defer cancelNext()
						began = time.Now()
						if err := do(soon, next); err != nil || time.Since(began) > 0 {
							t.Errorf("the next call: got %v after %v, want no error at once", err, time.Since(began))
						}
					})
				})
			}
		}
	}
}

// busy has a pod be in the middle of a call of the driver, until leave is called.
func (r *rig) busy(f *fake, p *v1.Pod) (leave func()) {
	r.t.Helper()
	entered, left, done := make(chan bool), make(chan bool), make(chan error, 1)
	f.set(func() {
		f.prepare = func(_ context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
			entered <- true
			<-left
			return f.usual(q), nil
		}
	})
	go func() { done <- r.Prepare(context.Background(), p) }()
	<-entered
	f.set(func() { f.prepare = nil })
	return func() {
		r.t.Helper()
		close(left)
		if err := <-done; err != nil {
			r.t.Errorf("the call in progress: got %v", err)
		}
	}
}

// The pod waits for one claim and has another already.
func TestAPodThatIsStoppedWhileItWaitsLeavesItsOtherClaimsFree(t *testing.T) {
	for _, call := range []string{"Prepare", "Unprepare"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				both, first, last := aPod("both", "a", "z"), aPod("first", "a"), aPod("last", "z")
				r := newRig(t, nil)
				r.api.add("a", "c1", gpu, both, first)
				r.api.add("z", "c2", gpu, both, last)
				r.plug(newFake(gpu))
				r.prepares(both)
				r = newRig(t, r) // which prepares again what it is asked for
				defer r.stop()
				f := newFake(gpu)
				r.plug(f)
				leave := r.busy(f, last)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(errStopped) })
				err := error(nil)
				if call == "Prepare" {
					err = r.Prepare(ctx, both)
				} else {
					err = r.Unprepare(ctx, both.UID)
				}
				if !errors.Is(err, errStopped) {
					t.Errorf("got %v, want %v", err, errStopped)
				}
				soon, cancelNext := context.WithTimeout(t.Context(), time.Minute)
				defer cancelNext()
				if err := r.Prepare(soon, first); err != nil {
					t.Errorf("a pod with the other claim: got %v", err)
				}
				leave()
				r.prepares(both)
				r.unprepares(both)
			})
		})
	}
}

// Each has one of two claims and would wait for the other for ever.
func TestPodsThatShareTwoClaimsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t, nil), newFake(gpu)
		defer r.stop()
		r.plug(f)
		one, other, first := aPod("one", "a", "z"), aPod("other", "z", "a"), aPod("first", "a")
		r.api.add("a", "c1", gpu, one, other, first)
		r.api.add("z", "c2", gpu, one, other)
		leave := r.busy(f, first)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, 2)
		for _, p := range []*v1.Pod{one, other} {
			go func() { errs <- r.Prepare(ctx, p) }()
			synctest.Wait() // it waits for the claim "a"
		}
		leave()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Errorf("got %v", err)
		}
	})
}
