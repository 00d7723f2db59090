package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func TestTheConnectionOfADriverThatIsUnregisteredIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, old, other := newRig(t, nil), newFake(gpu), newFake(gpu)
		defer r.stop()
		r.plug(old)
		r.plug(other)
		r.Deregister(gpu, endpointOf(old))
		synctest.Wait()
		for f, want := range map[*fake]bool{old: true, other: false} {
			f.set(func() {
				if f.closed != want {
					t.Errorf("the unregistered one: %v: its connection is closed: %v", f == old, f.closed)
				}
			})
		}
	})
}

func TestAPodIsWokenOnlyByADriverThatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t, nil), newFake(gpu)
		defer r.stop()
		waits, leaves, served := aPod("waits", "a"), aPod("leaves", "b"), aPod("served", "c")
		for i, p := range []string{"waits", "leaves", "served"} {
			r.api.add(string(rune('a'+i)), "c1", gpu, aPod(p))
		}
		r.refused(waits, "is not registered")
		r.refused(leaves, "is not registered")
		r.unprepares(leaves) // the pod is gone
		unlucky := aPod("unlucky", "d")
		r.api.add("d", "c1", "another.example.com", unlucky)
		r.refused(unlucky, "is not registered")
		r.unprepares(unlucky)
		connect := r.plugAway(f)
		expect := func(when string, want ...int) {
			t.Helper()
			synctest.Wait()
			if got := []int{r.of(waits.UID), r.of(leaves.UID), r.of(served.UID)}; !slices.Equal(got, want) {
				t.Errorf("%s: the pods that wait, left and have their devices were woken %v times, want %v", when, got, want)
			}
		}
		expect("registered, and not connected", 0, 0, 0)
		connect(true)
		expect("connected", 1, 0, 0)
		connect(false)
		connect(true)
		expect("connected again", 1, 0, 0)
		f.answers(func(context.Context) error { return errors.New("not now") })
		r.refused(served, "not now")
		f.answers(nil)
		r.prepares(served)
		connect(true)
		expect("after the pod has its devices", 1, 0, 0)
		f.answers(func(context.Context) error { return errors.New("not now") })
		r.refused(waits, "not now")
		connect(true)
		expect("a driver that has refused", 2, 0, 0)
		r.Manager.mu.Lock()
		defer r.Manager.mu.Unlock()
		if len(r.waiting) > 0 {
			t.Errorf("nobody waits, and remembered is %v", r.waiting)
		}
	})
}

// deletes expects the deletions of ResourceSlices since the last time.
func (r *rig) deletes(when string, want int) {
	r.t.Helper()
	synctest.Wait()
	if got := r.api.deletions(); len(got) != want {
		r.t.Errorf("%s: got deletions %q, want %d", when, got, want)
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	r.api.wiped = nil
}

func TestResourceSlicesOfADriverThatIsAwayAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		connect := r.plug(newFake(gpu))
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := r.api.deletions(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		time.Sleep(time.Hour)
		expect("while it is there")
		connect(false)
		time.Sleep(29 * time.Second)
		connect(true)
		time.Sleep(time.Hour)
		expect("back in time")
		r.api.err = errors.New("no")
		connect(false)
		time.Sleep(30*time.Second + time.Millisecond)
		expect("away", "node gpu.example.com")
		time.Sleep(3 * time.Second)
		expect("tried again after 1 s and 2 s", "node gpu.example.com", "node gpu.example.com", "node gpu.example.com")
		connect(true)
		time.Sleep(time.Hour)
		expect("back", "node gpu.example.com", "node gpu.example.com", "node gpu.example.com")
		r.api.mu.Lock()
		r.api.err, r.api.wiped = nil, nil
		r.api.mu.Unlock()
		r.Manager.mu.Lock()
		endpoint := r.drivers[gpu][0].endpoint
		r.Manager.mu.Unlock()
		r.Deregister(gpu, endpoint)
		time.Sleep(time.Hour)
		expect("unregistered", "node gpu.example.com")
		r.WipeResourceSlices(t.Context())
		expect("at the start", "node gpu.example.com", "node ")
		r.stop()
	})
}

func TestResourceSlicesOfADriverThatNeverConnectsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.plugAway(newFake(gpu))
		time.Sleep(20 * time.Second)
		r.plugAway(newFake(gpu)) // another one that does not: the driver is away as long as before
		r.deletes("after 20 s", 0)
		time.Sleep(10*time.Second + time.Millisecond)
		r.deletes("after 30 s", 1)
		time.Sleep(time.Hour)
		r.deletes("an hour later", 0)
		r.plugAway(newFake(gpu)) // it may have published some since
		time.Sleep(time.Hour)
		r.deletes("yet another one", 1)
	})
}

// Its attempts would go on for ever.
func TestTheDeletionOfResourceSlicesEndsWithPodd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.api.err = errors.New("no")
		r.plugAway(newFake(gpu))
		time.Sleep(time.Minute)
		ended := make(chan struct{})
		go func() { r.stop(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("podd does not end while ResourceSlices cannot be deleted")
		}
		r.deletes("before the end", 5) // after 30, 31, 33, 37 and 45 s
		time.Sleep(time.Hour)
		r.deletes("after the end", 0)
	})
}

// Whoever started Run closes its connections then.
func TestRunEndsAfterItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.api.held = make(chan struct{})
		r.plugAway(newFake(gpu))
		time.Sleep(time.Minute)
		ended := make(chan struct{})
		go func() { r.stop(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run has ended before its request to the apiserver has")
		default:
		}
		close(r.api.held)
		<-ended
		r.deletes("in all", 1)
	})
}

// Each pod that is gone is tried for at once, also when another's next attempt is due later.
func TestAPodThatIsDroppedIsUnpreparedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t, nil), newFake(gpu)
		defer r.stop()
		r.plug(f)
		stuck, next, plain := aPod("stuck", "a"), aPod("next", "b"), aPod("plain")
		r.api.add("a", "c1", gpu, stuck)
		r.api.add("b", "c2", gpu, next)
		r.prepares(stuck)
		r.prepares(next)
		f.heard()
		f.set(func() {
			f.unprepare = func(_ context.Context, q *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
				if q.Claims[0].Name == "a" {
					return nil, errors.New("not now")
				}
				return &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{q.Claims[0].Uid: {}}}, nil
			}
		})
		r.Drop(stuck.UID)
		r.Drop(plain.UID)
		synctest.Wait()
		r.expect(f, "unprepare default/a/c1")
		time.Sleep(10 * time.Second)
		r.Drop(next.UID)
		synctest.Wait()
		if got := f.heard(); !strings.Contains(got, "unprepare default/b/c2") || r.HasPrepared(next.UID) {
			t.Errorf("the driver has heard %q, and the pod holds its claims: %v", got, r.HasPrepared(next.UID))
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		r.expect(f, "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.expect(f, "unprepare default/a/c1")
		f.set(func() { f.unprepare = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		r.expect(f, "unprepare default/a/c1")
		r.Manager.mu.Lock()
		defer r.Manager.mu.Unlock()
		if len(r.orphanedPods) > 0 || len(r.claims) > 0 {
			t.Errorf("left are %v and %v, want nothing", r.orphanedPods, fmt.Sprint(r.claims))
		}
	})
}
