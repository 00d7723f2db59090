package nodestatus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *server) Lease(_ context.Context, name string) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("get lease"); err != nil {
		return nil, err
	}
	if s.lease == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return s.lease, nil
}

func (s *server) CreateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("create lease"); err != nil {
		return nil, err
	}
	s.lease = l
	return l, nil
}

func (s *server) UpdateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("update lease"); err != nil {
		return nil, err
	}
	if s.lease != nil && l.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, l.Name, errors.New("the object has been modified"))
	}
	l = l.DeepCopy()
	s.leases++
	l.ResourceVersion = strconv.Itoa(s.leases)
	s.lease = l
	if s.lost {
		return nil, errors.New("connection reset")
	}
	return l, nil
}

func leasing(t *testing.T, s *server, node func() *v1.Node, run func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- NewLease(LeaseConfig{Client: s, Name: "node0", Duration: 40 * time.Second, Node: node}).Run(ctx)
		}()
		run()
		cancel()
		<-done
	})
}

// registered is a Node that the apiserver has.
func registered() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node0", UID: "uid-1"}}
}

func TestALeaseIsRenewedEveryTenSecondsAndOwnedByTheNode(t *testing.T) {
	s := &server{}
	var node *v1.Node
	leasing(t, s, func() *v1.Node { s.mu.Lock(); defer s.mu.Unlock(); return node }, func() {
		time.Sleep(time.Second)
		s.mu.Lock()
		node = &v1.Node{}
		node.Name, node.UID = "node0", "uid-1"
		s.mu.Unlock()
		time.Sleep(time.Minute)
		got := s.did()
		before := slices.Index(got, "create lease")
		if before < 1 || slices.ContainsFunc(got[:before], func(r string) bool { return r != "get lease" }) {
			t.Errorf("got requests %q, want no Lease before there is its Node", got)
		}
		if after := got[before:]; len(after) != 6 || after[1] != "update lease" {
			t.Errorf("got requests %q", got)
		}
		if l := s.lease; *l.Spec.HolderIdentity != "node0" || *l.Spec.LeaseDurationSeconds != 40 || time.Since(l.Spec.RenewTime.Time) > 10*time.Second ||
			len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "uid-1" || l.Namespace != "kube-node-lease" {
			t.Errorf("got %+v", l)
		}
	})
}

func TestALeaseThatCannotBeRenewedIsTriedSoonAgain(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func() {
		time.Sleep(time.Second)
		s.mu.Lock()
		s.away = true
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		s.away, s.requests = false, nil
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		if got := s.did(); len(got) < 2 || got[0] != "get lease" || got[1] != "update lease" {
			t.Errorf("got requests %q", got)
		}
	})
}

// The cluster sees only that a time of renewal is later than the last one: of a node whose clock
// was ahead and is set back, too.
func TestALeaseIsRenewedAlsoWhenTheClockIsSetBack(t *testing.T) {
	s := &server{}
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(LeaseConfig{Client: s, Name: "node0", Duration: 40 * time.Second, Node: registered})
		renewed := func() metav1.MicroTime {
			t.Helper()
			if err := l.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			return *s.lease.Spec.RenewTime
		}
		ahead := metav1.NewMicroTime(renewed().Add(time.Hour)) // what it would have been
		l.last = l.last.DeepCopy()
		l.last.Spec.RenewTime, s.lease, l.own = &ahead, l.last, []time.Time{ahead.Time}
		last := ahead
		for range 5 {
			time.Sleep(10 * time.Second)
			now := renewed()
			if !last.Before(&now) || now.Sub(ahead.Time) > time.Second {
				t.Errorf("renewed at %s, before at %s", now, last)
			}
			last = now
		}
		l.last = nil // it is read anew after an error
		time.Sleep(time.Hour)
		if now := renewed(); time.Since(now.Time) >= time.Microsecond {
			t.Errorf("the clock has caught up, and it is renewed at %s", now)
		}
		if len(l.Problems()) > 0 {
			t.Errorf("got %v", l.Problems())
		}
	})
}

// Two agents with one node's name: each says so, and no longer once the other is gone.
func TestASecondAgentOfTheSameNameIsNoticedByBoth(t *testing.T) {
	s := &server{}
	synctest.Test(t, func(t *testing.T) {
		run := func() (l *Lease, stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			l = NewLease(LeaseConfig{Client: s, Name: "node0", Duration: 40 * time.Second, Node: registered})
			go func() { done <- l.Run(ctx) }()
			return l, func() { cancel(); <-done }
		}
		one, stopOne := run()
		time.Sleep(3 * time.Second)
		two, stopTwo := run()
		time.Sleep(time.Minute)
		for name, l := range map[string]*Lease{"the first": one, "the second": two} {
			if got := l.Problems(); len(got) != 1 || got[0].Origin != "node node0" {
				t.Errorf("%s: got problems %+v", name, got)
			}
		}
		stopTwo()
		time.Sleep(time.Minute)
		if got := one.Problems(); len(got) != 0 {
			t.Errorf("the other is gone: got problems %+v", got)
		}
		stopOne()
		// A restart follows its predecessor, and is no second agent.
		three, stopThree := run()
		time.Sleep(time.Minute)
		if got := three.Problems(); len(got) != 0 {
			t.Errorf("a restart: got problems %+v", got)
		}
		stopThree()
	})
}

func TestRenewalsWhoseAnswersWereLostAreNoSecondAgent(t *testing.T) {
	s := &server{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		l := NewLease(LeaseConfig{Client: s, Name: "node0", Duration: 40 * time.Second, Node: registered})
		go func() { done <- l.Run(ctx) }()
		for range 20 {
			s.mu.Lock()
			s.lost = !s.lost
			s.mu.Unlock()
			time.Sleep(17 * time.Second)
			if got := l.Problems(); len(got) != 0 {
				t.Fatalf("got problems %+v", got)
			}
		}
		cancel()
		<-done
	})
}
