package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func existing() *v1.Node {
	n := &v1.Node{}
	n.Name, n.UID = "node0", "old"
	return n
}

// registrar returns one that has not run yet.
func registrar(s *server, reset bool) *Registrar {
	return New(Config{Client: s, Facts: facts(), Register: true, ResetExtendedResources: reset, State: func(context.Context) State { return State{} }})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRegistrationIsTriedEachSevenSecondsAfterSomeAttemptsInShortOrder(t *testing.T) {
	registering(t, &server{away: true}, func(b *bed) {
		began := time.Now()
		time.Sleep(30 * time.Second)
		want := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond, 3 * time.Second, 6200 * time.Millisecond,
			12600 * time.Millisecond, 19600 * time.Millisecond, 26600 * time.Millisecond}
		if got := b.server.attempts(began); !slices.Equal(got, want) {
			b.t.Errorf("got attempts after %v, want %v", got, want)
		}
		if isClosed(b.Registered()) {
			b.t.Error("it says that it is registered")
		}
	}) // it ends while it waits
	registering(t, &server{}, func(b *bed) {
		synctest.Wait()
		if !isClosed(b.Registered()) {
			b.t.Error("it does not say that it is registered")
		}
	})
}

func TestWhyTheNodeIsNotRegisteredIsLoggedOnce(t *testing.T) {
	registering(t, &server{away: true}, func(b *bed) {
		for _, step := range []struct {
			change func()
			lines  int
			says   string
		}{
			{func() {}, 1, "connection refused"},
			{func() { b.server.leave(false); b.server.refuse("create", errors.New("quota exceeded")) }, 2, "quota exceeded"},
			{func() { b.server.refuse("create", nil) }, 2, "node registered"},
		} {
			step.change()
			time.Sleep(time.Minute)
			if b.logs.lines("cannot register this node") != step.lines || b.logs.lines(step.says) != 1 {
				b.t.Errorf("got the log %s, want %d failures and %q", &b.logs.text, step.lines, step.says)
			}
		}
		b.set(State{MemoryPressure: true})
		time.Sleep(time.Minute)
		if b.logs.lines("sent again") != 0 {
			b.t.Errorf("got the log %s, though each status was sent", &b.logs.text)
		}
	})
}

func TestARegistrationThatIsRefusedSaysWhy(t *testing.T) {
	refused := errors.New("etcdserver: no leader")
	for what, node := range map[string]*v1.Node{"create": nil, "get": existing(), "patch status": existing()} {
		s := &server{node: node}
		s.refuse(what, refused)
		r := registrar(s, false)
		if err := r.tryRegister(t.Context()); !errors.Is(err, refused) || r.Node() != nil {
			t.Errorf("%s: got %v and the Node %+v, want %v", what, err, r.Node(), refused)
		}
	}
}

func TestTheNodeIsKnownOnceItIsRegistered(t *testing.T) {
	for name, node := range map[string]*v1.Node{"new": nil, "existing": existing()} {
		s := &server{node: node}
		r := registrar(s, false)
		if err := r.tryRegister(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.Node(); n == nil || n.UID != s.node.UID || n.Labels[v1.LabelHostname] != "node0" || r.LastKnownNode() != n {
			t.Errorf("%s: got %+v, want %+v", name, n, s.node)
		}
	}
}

// The device plugins of a machine that was set up anew may be gone; a restart of podd is none.
func TestAFreshAgentSetsTheDevicesOfAnExistingNodeToZero(t *testing.T) {
	for fresh, want := range map[bool][2]int64{true: {0, 0}, false: {7, 6}} {
		n := existing()
		n.Status.Capacity = v1.ResourceList{"example.com/gpu": resource.MustParse("7")}
		n.Status.Allocatable = v1.ResourceList{"example.com/gpu": resource.MustParse("6")}
		s := &server{node: n}
		if err := registrar(s, fresh).tryRegister(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := amounts(s.node, "example.com/gpu"); got != want {
			t.Errorf("fresh %t: got capacity and allocatable %v, want %v", fresh, got, want)
		}
	}
}

func TestWhyAStatusIsNotSentIsLoggedOnceAndThatItIsSentAgain(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		for i, step := range []struct {
			refused     error
			failed, not int // lines so far: those of failures, and of their end
		}{
			{nil, 0, 0}, {errors.New("etcdserver: no leader"), 1, 0}, {errors.New("quota exceeded"), 2, 0}, {nil, 2, 1}, {errors.New("quota exceeded"), 3, 1}, {nil, 3, 2},
		} {
			b.server.refuse("patch status", step.refused)
			address := fmt.Sprint("10.0.1.", i)
			b.set(State{Addresses: []string{address}})
			time.Sleep(time.Minute)
			if b.logs.lines("cannot send the node's status") != step.failed || b.logs.lines("sent again") != step.not {
				b.t.Errorf("step %d: got the log %s, want %d failures and %d ends", i, &b.logs.text, step.failed, step.not)
			}
			if step.refused != nil && b.logs.lines(step.refused.Error()) == 0 {
				b.t.Errorf("step %d: got the log %s, want %v", i, &b.logs.text, step.refused)
			}
			if got := b.node().Status.Addresses[0].Address; (got == address) != (step.refused == nil) {
				b.t.Errorf("step %d: got the address %s, with %s and %v", i, got, address, step.refused)
			}
		}
	})
}

// The watch may be behind what the apiserver has answered.
func TestAStatusIsSentOnceThoughTheWatchLags(t *testing.T) {
	s := &server{}
	registering(t, s, func(b *bed) {
		time.Sleep(time.Second)
		s.mu.Lock()
		s.lagging = true
		s.mu.Unlock()
		s.did()
		b.set(State{MemoryPressure: true})
		time.Sleep(time.Minute)
		b.want("a minute", "patch status")
		if want := []string{"NodeHasInsufficientMemory"}; !slices.Equal(b.happened(), want) {
			b.t.Errorf("got events %q, want %q", b.happened(), want)
		}
	})
}

// TestAnOlderVersionOfTheNodeIsNotKept, whoever has it. Versions of another Node of the name, as
// of a cluster that was set up anew, cannot be compared.
func TestAnOlderVersionOfTheNodeIsNotKept(t *testing.T) {
	version := func(uid types.UID, version string) *v1.Node {
		n := existing()
		n.UID, n.ResourceVersion = uid, version
		return n
	}
	for name, keep := range map[string]func(*Registrar, *v1.Node){
		"kept":    (*Registrar).ObserveNode,
		"watched": func(r *Registrar, n *v1.Node) { r.handleNodeUpdate([]*v1.Node{n}, nil) },
	} {
		for _, tt := range []struct {
			next *v1.Node
			want bool // it is kept
		}{
			{version("u", "9"), false}, {version("u", "11"), true}, {version("u", "100"), true}, {version("u", "2"), false},
			{version("other", "3"), true}, {version("u", ""), true},
		} {
			r := New(Config{})
			r.ObserveNode(version("u", "10"))
			keep(r, tt.next)
			if got := r.Node() == tt.next; got != tt.want || r.LastKnownNode() != r.Node() {
				t.Errorf("%s: %s %q after u 10: kept: got %t, want %t", name, tt.next.UID, tt.next.ResourceVersion, got, tt.want)
			}
		}
	}
}

// Who removes labels of a node, or lets somebody else create it anew, has podd know at once.
func TestWhatTheWatchTellsIsSeenAtOnce(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		b.server.write(func(n *v1.Node) *v1.Node { n.Labels["team"] = "a"; return n })
		synctest.Wait()
		if b.seen().Labels["team"] != "a" || b.Node().Labels["team"] != "a" {
			b.t.Errorf("got %+v, want the new label", b.seen())
		}
		b.server.write(func(*v1.Node) *v1.Node { return nil })
		synctest.Wait()
		if b.Node() != nil || b.LastKnownNode().Labels["team"] != "a" || b.logs.lines("the Node was deleted") != 1 {
			b.t.Errorf("deleted: got %+v, before %+v, the log %s", b.Node(), b.LastKnownNode(), &b.logs.text)
		}
		b.server.write(func(*v1.Node) *v1.Node { n := existing(); n.Spec.Unschedulable = true; return n })
		time.Sleep(time.Second)
		if b.Node().UID != "old" || b.seen().UID != "old" || b.logs.lines("the Node was deleted") != 1 {
			b.t.Errorf("created anew: got %+v, the log %s", b.Node(), &b.logs.text)
		}
		if c := b.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			b.t.Errorf("created anew: got %+v, want its status maintained", c)
		}
	})
}

// TestReportsOfManyNodesAreSpread, for they may have been started together; each then reports
// every five minutes.
func TestReportsOfManyNodesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		servers, done := make([]*server, 10), make(chan error)
		for i := range servers {
			servers[i] = &server{}
			r := New(Config{
				Client: servers[i], Facts: facts(), Register: true, UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute,
				State: func(context.Context) State { return State{} }, Log: slog.New(slog.DiscardHandler),
			})
			go func() { done <- r.Run(ctx) }()
		}
		time.Sleep(30 * time.Minute)
		firsts := map[time.Duration]bool{}
		for i, s := range servers {
			at := s.attempts(began)[1:] // but for the registration
			firsts[at[0]] = true
			if at[0] < 150*time.Second || at[0] > 460*time.Second {
				t.Errorf("node %d: got its first report after %v, want half to one and a half of five minutes", i, at[0])
			}
			for j := range at[1:] {
				if every := at[j+1] - at[j]; every != 5*time.Minute {
					t.Errorf("node %d: got a report %v after the one before, want five minutes", i, every)
				}
			}
		}
		if len(firsts) < 2 {
			t.Errorf("all nodes reported after %v", firsts)
		}
		cancel()
		for range servers {
			<-done
		}
	})
}
