package podsapi

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// client is a watcher. It reads nothing between pause and resume.
type client struct {
	grpc.ServerStream
	ctx  context.Context
	turn chan struct{} // holds a value while it reads
	got  []*api.WatchPodsEvent
}

func newClient(ctx context.Context) *client {
	c := &client{ctx: ctx, turn: make(chan struct{}, 1)}
	c.resume()
	return c
}

func (c *client) pause()  { <-c.turn }
func (c *client) resume() { c.turn <- struct{}{} }

func (c *client) Context() context.Context { return c.ctx }

func (c *client) Send(e *api.WatchPodsEvent) error {
	select {
	case <-c.turn:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	defer c.resume()
	c.got = append(c.got, e)
	return nil
}

// read returns the new events as "TYPE name phase", and forgets them.
func (c *client) read(t *testing.T) (events []string) {
	t.Helper()
	synctest.Wait()
	for _, e := range c.got {
		if e.Type == api.EventType_INITIAL_SYNC_COMPLETE && e.Pod == nil {
			events = append(events, e.Type.String())
			continue
		}
		p := decode(t, e.Pod)
		events = append(events, fmt.Sprint(e.Type, " ", p.Name, " ", p.Status.Phase))
	}
	c.got = nil
	return events
}

// watch watches until the test ends, or the server ends it: the error is sent then.
func watch(t *testing.T, r *rig) (*client, <-chan error) {
	ctx, stop := context.WithCancel(t.Context())
	c, ended := newClient(ctx), make(chan error, 1)
	go func() { ended <- r.WatchPods(&api.WatchPodsRequest{}, c) }()
	t.Cleanup(stop)
	return c, ended
}

func expect(t *testing.T, c *client, want ...string) {
	t.Helper()
	if got := c.read(t); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAWatcherGetsAllPodsThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("")
		r.put("a", "1", v1.PodRunning)
		r.put("b", "2", v1.PodPending)
		c, _ := watch(t, r)
		expect(t, c, "ADDED a Running", "ADDED b Pending", "INITIAL_SYNC_COMPLETE")
		r.put("b", "2", v1.PodRunning)
		expect(t, c, "MODIFIED b Running")
		r.put("c", "3", v1.PodPending)
		expect(t, c, "ADDED c Pending")
		r.put("b", "2", v1.PodSucceeded)
		expect(t, c, "MODIFIED b Succeeded")
		r.remove("b-not-there")
		expect(t, c)
		r.remove("2")
		synctest.Wait()
		if p := decode(t, c.got[0].Pod); p.UID != "2" || p.Namespace != "default" || len(p.Spec.Containers) > 0 {
			t.Errorf("of a deleted pod the client gets %v, want its names", p)
		}
		expect(t, c, "DELETED b ")
	})
}

func TestTheEndOfAPodComesBeforeItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("")
		r.put("web", "9", v1.PodRunning)
		c, _ := watch(t, r)
		expect(t, c, "ADDED web Running", "INITIAL_SYNC_COMPLETE")
		r.remove("9")
		r.put("web", "1", v1.PodPending)
		expect(t, c, "DELETED web ", "ADDED web Pending")
	})
}

// A watcher that pauses gets the newest version of each pod, and every end.
func TestASlowWatcherMissesOnlyWhatIsOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("")
		r.put("a", "1", v1.PodPending)
		r.put("b", "2", v1.PodPending)
		c, ended := watch(t, r)
		expect(t, c, "ADDED a Pending", "ADDED b Pending", "INITIAL_SYNC_COMPLETE")
		c.pause()
		r.put("a", "1", v1.PodRunning)
		synctest.Wait() // that event is on its way
		for range 1000 {
			r.put("a", "1", v1.PodRunning)
			r.put("short-lived", "3", v1.PodRunning)
			r.remove("3")
		}
		r.put("a", "1", v1.PodFailed)
		r.remove("2")
		time.Sleep(stallTimeout - time.Second)
		c.resume()
		expect(t, c, "MODIFIED a Running", "DELETED b ", "MODIFIED a Failed")
		select {
		case err := <-ended:
			t.Errorf("its watch ended: %v", err)
		default:
		}
	})
}

func TestAWatcherThatNeverReadsLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("")
		c, ended := watch(t, r)
		expect(t, c, "INITIAL_SYNC_COMPLETE")
		time.Sleep(time.Hour) // nothing to read: that is no fault
		c.pause()
		r.put("a", "1", v1.PodPending)
		if err := <-ended; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("got %v", err)
		}
		if n := testutil.ToFloat64(r.Server.metrics.dropped); n != 1 || len(r.watchers) != 0 || r.subscribers.Load() != 0 {
			t.Errorf("%v events are counted as dropped, %d places and %d subscriptions are taken", n, len(r.watchers), r.subscribers.Load())
		}
		c.resume()
	})
}

func TestWatchersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("")
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- r.WatchPods(&api.WatchPodsRequest{}, newClient(ctx)) }()
		for range maxWatchers - 1 {
			watch(t, r)
		}
		synctest.Wait()
		_, refused := watch(t, r)
		if err := <-refused; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one too many: got %v", err)
		}
		leave()
		if err := <-first; err == nil {
			t.Error("a watch whose client left: no error")
		}
		c, _ := watch(t, r)
		expect(t, c, "INITIAL_SYNC_COMPLETE")
	})
}
