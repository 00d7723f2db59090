package cri_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri"
	"podd/internal/pod"
	"podd/internal/slots"
)

// follow reads the runtime's events until the test ends, and returns once the roster
// relies on them.
func (r *rig) follow(t *testing.T, l *look) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Events(ctx, l.event)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	eventually(t, "a listener", func() bool { return r.srv.Listeners() == 1 })
	r.rely(t)
}

// rely has the roster take in a list that counts.
func (r *rig) rely(t *testing.T) {
	t.Helper()
	r.StreamSettled()
	if _, err := r.Summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.srv.ResetCalls()
}

// another is another client of the same runtime.
func (r *rig) another(t *testing.T) *rig {
	other := &rig{srv: r.srv, log: quiet, dir: r.dir, id: r.id, opts: r.opts, env: r.env}
	other.dial(t)
	return other
}

func (r *rig) listed() int { return r.srv.Count("ListPodSandbox") + r.srv.Count("ListContainers") }

func TestAPodThatPoddMadeIsObservedWithoutLists(t *testing.T) {
	r := newRig(t)
	others := aPod("other")
	r.start(t, others, r.sandbox(t, others, 0), 0)
	l := newLook()
	r.follow(t, l)
	p := aPod("web")
	if o := r.observe(t, p.UID); !o.Empty() {
		t.Errorf("before its start: got %+v, want nothing", o)
	}
	s := r.sandbox(t, p, 0)
	if o := r.observe(t, p.UID); len(o.Sandboxes) != 1 || !o.Sandboxes[0].Ready || len(o.Sandboxes[0].IPs) != 1 || o.Name != "web" || o.StartTime.IsZero() || o.Source != pod.SourceFile {
		t.Errorf("with a sandbox: got %+v", o)
	}
	first := r.start(t, p, s, 0)
	r.srv.Exit("app", 3)
	second := r.start(t, p, s, 1)
	o := r.observe(t, p.UID)
	if len(o.Containers) != 2 || o.Containers[0].ID != second || o.Containers[0].State != pod.ContainerRunning || o.Containers[1].ID != first || o.Containers[1].ExitCode != 3 || o.Containers[1].SandboxID != s.ID {
		t.Errorf("with containers: got %+v, want the newest first", o.Containers)
	}
	r.srv.ResetCalls()
	r.observe(t, p.UID)
	if n := r.srv.Count(""); n != 2 {
		t.Errorf("calls of a look at a pod with one container that runs and one that has ended: got %d, want 2", n)
	}
	if err := r.RemoveContainer(t.Context(), first, false); err != nil {
		t.Fatal(err)
	}
	if o := r.observe(t, p.UID); len(o.Containers) != 1 {
		t.Errorf("after the removal of one: got %d containers, want 1", len(o.Containers))
	}
	if err := errors.Join(r.StopContainer(t.Context(), second, 0), r.StopSandbox(t.Context(), s.ID)); err != nil {
		t.Fatal(err)
	}
	if o := r.observe(t, p.UID); o.Sandboxes[0].Ready || o.Sandboxes[0].IPs != nil || o.Containers[0].State != pod.ContainerExited {
		t.Errorf("after the stop: got %+v", o)
	}
	if err := r.RemoveSandbox(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	// Created, started, stopped and deleted: sandbox, and two containers.
	eventually(t, "twelve events", func() bool { return l.of(p.UID) == 12 })
	if o := r.observe(t, p.UID); !o.Empty() {
		t.Errorf("after its removal: got %+v, want nothing", o)
	}
	if o, err := r.Lookup(t.Context(), p.UID); err != nil || !o.Empty() {
		t.Errorf("looked up after its removal: got %+v, %v", o, err)
	}
	if n := r.listed(); n != 0 {
		t.Errorf("got %d lists, want none", n)
	}
}

func TestWhatMayBeUnknownIsListed(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(t *testing.T, r *rig, s pod.Sandbox)
		// containers is how many are seen afterwards.
		containers int
	}{
		"a create that failed, and has left a container": {func(t *testing.T, r *rig, s pod.Sandbox) {
			r.srv.LoseEvents(true)
			r.srv.LoseAnswerNth("CreateContainer", 1)
			if _, err := r.create(t.Context(), r.request(t, aPod("web"), s, 1)); err != nil {
				t.Fatal(err)
			}
		}, 2},
		"a create that failed, and has left nothing": {func(t *testing.T, r *rig, s pod.Sandbox) {
			r.srv.FailNth("CreateContainer", 1, codes.Internal, "no")
			if _, err := r.create(t.Context(), r.request(t, aPod("web"), s, 1)); err == nil {
				t.Fatal("got no error")
			}
		}, 1},
		"a stream that was lost": {func(t *testing.T, r *rig, _ pod.Sandbox) {
			r.srv.DropStreams()
			eventually(t, "the end of the stream", func() bool { return !r.Relies() })
		}, 1},
		"a container that was removed, and its event is lost": {func(t *testing.T, r *rig, _ pod.Sandbox) {
			r.srv.LoseEvents(true)
			r.srv.Exit("app", 0)
			other := r.another(t)
			for _, k := range r.srv.Containers() {
				if err := other.Client.RemoveContainer(t.Context(), k.ID); err != nil {
					t.Fatal(err)
				}
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.follow(t, newLook())
			p := aPod("web")
			s := r.sandbox(t, p, 0)
			r.start(t, p, s, 0)
			tc.happens(t, r, s)
			r.srv.ResetCalls()
			if o := r.observe(t, p.UID); len(o.Containers) != tc.containers {
				t.Errorf("got %d containers, want %d", len(o.Containers), tc.containers)
			}
			if n := r.listed(); n != 2 {
				t.Errorf("got %d lists, want the pod's two", n)
			}
		})
	}
}

// TestAContainerThatAnotherClientMadeIsSeen: the second client does not know of the
// first one's, but by the event.
func TestAContainerThatAnotherClientMadeIsSeen(t *testing.T) {
	r := newRig(t)
	l := newLook()
	r.follow(t, l)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	other := r.another(t)
	eventually(t, "the sandbox's two events", func() bool { return l.of(p.UID) == 2 })
	other.start(t, p, s, 0)
	eventually(t, "the container's two events", func() bool { return l.of(p.UID) == 4 })
	if o := r.observe(t, p.UID); len(o.Containers) != 1 {
		t.Errorf("got %d containers, want the other's", len(o.Containers))
	}
	r.srv.ResetCalls()
	if o := r.observe(t, p.UID); len(o.Containers) != 1 || r.listed() != 0 {
		t.Errorf("the next look: got %d containers by %d lists, want 1 by none", len(o.Containers), r.listed())
	}
}

func TestThoseWhoMustListShareOneList(t *testing.T) {
	r := newRig(t)
	const pods = 40
	for i := range pods {
		r.sandbox(t, aPod(fmt.Sprint("web-", i)), 0)
	}
	r.dial(t) // a podd that was started anew: nothing is known
	r.srv.ResetCalls()
	release := r.srv.Hang("ListPodSandbox")
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			o, err := r.Observe(t.Context(), pod.UID(fmt.Sprint("uid-web-", i)))
			if err != nil || len(o.Sandboxes) != 1 || o.Name != fmt.Sprint("web-", i) {
				t.Errorf("pod %d: got %+v, %v, want its sandbox", i, o, err)
			}
		})
		if i == 0 { // who comes before the first list begins shares that one
			eventually(t, "the first list", func() bool { return r.srv.Waiting("ListPodSandbox") == 1 })
		}
	}
	eventually(t, "all others wait for the next list", func() bool { return r.ListsWaiting() == pods-1 })
	release()
	wg.Wait()
	if n := r.srv.Count("ListPodSandbox"); n != 2 {
		t.Errorf("got %d lists for %d pods, want 2: the first one's, and the next", n, pods)
	}
}

func TestAWaitForAListEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	release := r.srv.Hang("ListPodSandbox")
	defer release()
	_, err := r.Observe(r.untilWaiting(t, "ListPodSandbox"), "uid-web")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

// TestCallsInFlightAreBounded: so many at once, and no more, for each kind of call.
func TestCallsInFlightAreBounded(t *testing.T) {
	r := newRig(t)
	const many = 300
	for method, call := range map[string]func(context.Context, int) error{
		"ListPodSandbox": func(ctx context.Context, i int) error {
			_, err := r.Observe(ctx, pod.UID(fmt.Sprint("uid-", i)))
			return err
		},
		"PodSandboxStatus": func(ctx context.Context, i int) error { return r.AskSandbox(ctx, fmt.Sprint(i)) },
		"StopContainer": func(ctx context.Context, i int) error {
			return r.StopContainer(ctx, fmt.Sprint(i), time.Second)
		},
		"StopPodSandbox":   func(ctx context.Context, i int) error { return r.StopSandbox(ctx, fmt.Sprint(i)) },
		"RemovePodSandbox": func(ctx context.Context, i int) error { return r.Client.RemoveSandbox(ctx, fmt.Sprint(i)) },
		"StartContainer": func(ctx context.Context, i int) error {
			if err := r.StartContainer(ctx, fmt.Sprint(i)); !errors.Is(err, pod.ErrNotFound) {
				return err
			}
			return nil
		},
	} {
		t.Run(method, func(t *testing.T) {
			release := r.srv.Hang(method)
			var wg sync.WaitGroup
			began := time.Now()
			for i := range many {
				wg.Go(func() {
					if err := call(t.Context(), i); err != nil {
						t.Errorf("call %d: %v", i, err)
					}
				})
			}
			most := 0
			eventually(t, "calls reach the runtime", func() bool { most = max(most, r.srv.Waiting(method)); return most > 0 })
			// A call that is not the bounded kind is not behind them.
			if _, err := r.Version(t.Context()); err != nil {
				t.Error(err)
			}
			most = max(most, r.srv.Waiting(method))
			bound := max(16, cri.EndsAtOnce)
			if method == "StopContainer" { // a grace of a second is no rest
				bound = cri.EndsAtOnce
			}
			if time.Since(began) > 10*time.Second {
				bound += 48 // those that seem to hang by now let others pass
			}
			release()
			wg.Wait()
			if most > bound {
				t.Errorf("got %d in flight at once, want at most %d", most, bound)
			}
		})
	}
}

// TestAStopRestsBetweenItsSignalAndTheEndOfItsGrace: no other call does.
func TestAStopRestsBetweenItsSignalAndTheEndOfItsGrace(t *testing.T) {
	for name, tc := range map[string]struct {
		call any
		want slots.Rest
	}{
		"a stop":         {&runtimeapi.StopContainerRequest{Timeout: 30}, slots.Rest{From: time.Second, To: 30 * time.Second}},
		"a kill":         {&runtimeapi.StopContainerRequest{}, slots.Rest{From: time.Second}},
		"another call":   {&runtimeapi.StopPodSandboxRequest{}, slots.Rest{}},
		"a long command": {&runtimeapi.ExecSyncRequest{Timeout: 30}, slots.Rest{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cri.RestOf(tc.call); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestStopsThatWaitAreNotInterruptedForOthers: containerd takes the stop signal for sent
// once a call has begun, so a second call would wait for a container that never had it.
func TestStopsThatWaitAreNotInterruptedForOthers(t *testing.T) {
	r := newRig(t)
	release := r.srv.Hang("StopContainer")
	many := 2*cri.EndsAtOnce + 4 // more than may be active
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			if err := r.StopContainer(t.Context(), fmt.Sprint(i), 30*time.Second); err != nil {
				t.Errorf("stop %d: %v", i, err)
			}
		})
	}
	eventually(t, "all wait in the runtime", func() bool { return r.srv.Waiting("StopContainer") == many })
	release()
	wg.Wait()
	if n := r.srv.Count("StopContainer"); n != many {
		t.Errorf("got %d calls, want one for each of %d containers", n, many)
	}
}
