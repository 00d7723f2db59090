package nodestatus

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leasing runs a Lease in a bubble.
func leasing(t *testing.T, s *server, node func() *v1.Node, run func(l *Lease, log *logs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &logs{}
		l := NewLease(LeaseConfig{Client: s, Name: "node0", Duration: 40 * time.Second, Node: node, Log: slog.New(slog.NewTextHandler(log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		run(l, log)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v, want %v", err, context.Canceled)
		}
	})
}

// registered is a Node that the apiserver has.
func registered() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node0", UID: "uid-1"}}
}

func TestALeaseIsRenewedEveryTenSecondsAndOwnedByTheNode(t *testing.T) {
	s := &server{}
	var node *v1.Node
	leasing(t, s, func() *v1.Node { s.mu.Lock(); defer s.mu.Unlock(); return node }, func(_ *Lease, log *logs) {
		time.Sleep(time.Second)
		s.mu.Lock()
		node = &v1.Node{}
		node.Name, node.UID = "node0", "uid-1"
		s.mu.Unlock()
		time.Sleep(2 * time.Second)
		if s.present() == nil {
			t.Error("two seconds after there is a Node, it has no Lease")
		}
		time.Sleep(58 * time.Second)
		got := s.did()
		before := slices.Index(got, "create lease")
		if before < 1 || slices.ContainsFunc(got[:before], func(r string) bool { return r != "get lease" }) {
			t.Errorf("got requests %q, want no Lease before there is its Node", got)
		}
		if log.lines("cannot renew") > 0 {
			t.Errorf("got the log %s, want none of a Node that is not registered yet", &log.text)
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

// TestALeaseThatCannotBeRenewedIsTriedSoonAgain, then less often, and each time anew.
func TestALeaseThatCannotBeRenewedIsTriedSoonAgain(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func(*Lease, *logs) {
		for range 2 {
			time.Sleep(30 * time.Second)
			time.Sleep(time.Until(s.renewed().Add(10 * time.Second)))
			synctest.Wait() // it has just been renewed
			s.leave(true)
			began := time.Now().Add(10 * time.Second)
			time.Sleep(time.Minute)
			var want []time.Duration
			for at, wait := time.Duration(0), 200*time.Millisecond; at <= 50*time.Second; at, wait = at+wait, min(2*wait, 10*time.Second) {
				want = append(want, at)
			}
			if got := s.attempts(began); !slices.Equal(got, want) {
				t.Errorf("got attempts %v after the first that failed, want %v", got, want)
			}
			s.leave(false)
			s.did()
			time.Sleep(10 * time.Second)
			if got := s.did(); len(got) < 2 || got[0] != "get lease" || got[1] != "update lease" {
				t.Errorf("got requests %q", got)
			}
		}
	})
}

func TestWhyALeaseCannotBeRenewedIsLoggedOnce(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func(_ *Lease, log *logs) {
		time.Sleep(time.Second)
		refused := errors.New("etcdserver: no leader")
		for _, step := range []struct {
			fails            func()
			refused, renewed int // lines so far
			says             string
		}{
			{func() {}, 0, 0, ""},
			{func() { s.leave(true) }, 2, 0, "renew the node's lease: connection refused"},
			{func() { s.leave(false); s.refuse("get lease", refused) }, 3, 0, "get or create the node's lease: etcdserver: no leader"},
			{func() { s.refuse("get lease", nil) }, 3, 1, ""},
			{func() { s.refuse("update lease", refused) }, 4, 1, "renew the node's lease: etcdserver: no leader"},
			{func() { s.refuse("update lease", nil) }, 4, 2, ""},
			{func() { s.refuse("update lease", refused) }, 5, 2, ""},
			{func() { s.forget(); s.refuse("create lease", refused) }, 6, 2, ""},
			{func() { s.refuse("create lease", nil); s.refuse("update lease", nil) }, 6, 3, ""},
		} {
			step.fails()
			time.Sleep(time.Minute)
			synctest.Wait()
			if log.lines("cannot renew") != step.refused || log.lines("renewed again") != step.renewed || step.says != "" && log.lines(step.says) != 1 {
				t.Errorf("got the log %s, want %d failures, %d recoveries and %q", &log.text, step.refused, step.renewed, step.says)
			}
		}
	})
}

// hanging is an apiserver that does not answer.
type hanging struct{ *server }

func (hanging) Lease(ctx context.Context, _ string) (*coordinationv1.Lease, error) {
	<-ctx.Done()
	return &coordinationv1.Lease{}, errors.New("request canceled")
}

func (hanging) CreateNode(ctx context.Context, _ *v1.Node) (*v1.Node, error) {
	<-ctx.Done()
	return nil, errors.New("request canceled")
}

func TestARequestThatHangsEndsWithTheAgent(t *testing.T) {
	client := hanging{&server{}}
	var log logs
	logger := slog.New(slog.NewTextHandler(&log, nil))
	node := New(Config{Client: client, Facts: facts(), Register: true, State: func(context.Context) State { return State{} }, Log: logger})
	for name, run := range map[string]func(context.Context) error{
		"lease": NewLease(LeaseConfig{Client: client, Name: "node0", Duration: 40 * time.Second, Node: registered, Log: logger}).Run,
		"node":  node.Run,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := run(ctx); !errors.Is(err, context.DeadlineExceeded) || log.text.Len() > 0 {
				t.Errorf("%s: got %v and the log %s, want %v", name, err, &log.text, context.DeadlineExceeded)
			}
		})
	}
	if isClosed(node.Registered()) {
		t.Error("it says that it is registered")
	}
}

// What others write into the Lease stays, and costs no renewal.
func TestALeaseThatOthersChangedIsRenewedInTheSameRound(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func(l *Lease, log *logs) {
		time.Sleep(15 * time.Second)
		s.did()
		s.mu.Lock()
		s.lease = s.lease.DeepCopy()
		s.leases++
		s.lease.ResourceVersion, s.lease.Labels = strconv.Itoa(s.leases), map[string]string{"team": "a"}
		s.mu.Unlock()
		time.Sleep(5*time.Second + 1)
		if got, want := s.did(), []string{"update lease", "get lease", "update lease"}; !slices.Equal(got, want) {
			t.Errorf("got requests %q, want %q", got, want)
		}
		if now := s.present(); now.Labels["team"] != "a" || log.lines("lease") > 0 || len(l.Problems()) > 0 {
			t.Errorf("got %+v, the log %s and the problems %v", now, &log.text, l.Problems())
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
		l.last.Spec.RenewTime, s.lease, l.ownRenewTimes = &ahead, l.last, []time.Time{ahead.Time}
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

// present is the Lease as it is stored.
func (s *server) present() *coordinationv1.Lease { s.mu.Lock(); defer s.mu.Unlock(); return s.lease }

// renewed is when the Lease was.
func (s *server) renewed() time.Time { return s.present().Spec.RenewTime.Time }

// forget deletes the Lease.
func (s *server) forget() { s.mu.Lock(); defer s.mu.Unlock(); s.lease = nil }

// restore has the Lease be as a backup of the cluster had it; a nil time is none.
func (s *server) restore(at *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = s.lease.DeepCopy()
	s.leases++
	s.lease.ResourceVersion, s.lease.Spec.RenewTime = strconv.Itoa(s.leases), nil
	if at != nil {
		renewed := metav1.NewMicroTime(*at)
		s.lease.Spec.RenewTime = &renewed
	}
}

func TestABackupOfTheClusterIsNoSecondAgent(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func(l *Lease, log *logs) {
		time.Sleep(time.Second)
		first, second := time.Now().Add(-time.Hour), time.Now().Add(-2*time.Hour)
		for _, at := range []*time.Time{&first, &second, nil, &first} {
			s.restore(at)
			for range 12 {
				time.Sleep(10 * time.Second)
				if got := l.Problems(); len(got) > 0 {
					t.Fatalf("restored as of %v: got %+v", at, got)
				}
			}
			if since := time.Since(s.renewed()); since > 10*time.Second {
				t.Errorf("restored as of %v: renewed %v ago", at, since)
			}
		}
		// Twice the same within the duration of the Lease.
		for range 2 {
			s.restore(&second)
			time.Sleep(10 * time.Second)
		}
		if log.lines("another agent") > 0 || len(l.Problems()) > 0 {
			t.Errorf("got the log %s and the problems %+v", &log.text, l.Problems())
		}
	})
}

// TestASecondAgentIsGoneAfterTheDurationOfALease without it, and is logged when it comes and
// when it is gone.
func TestASecondAgentIsGoneAfterTheDurationOfALease(t *testing.T) {
	s := &server{}
	leasing(t, s, registered, func(l *Lease, log *logs) {
		time.Sleep(time.Second)
		for range 5 {
			at := time.Now()
			s.restore(&at)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(40*time.Second - time.Second - time.Millisecond) // since this one's renewal after the last of the other
		if got := l.Problems(); len(got) != 1 || log.lines("another agent") != 1 || log.lines("no other agent") != 0 {
			t.Errorf("got the problems %+v and the log %s", got, &log.text)
		}
		time.Sleep(2 * time.Millisecond)
		if got := l.Problems(); len(got) != 0 || log.lines("no other agent") != 1 {
			t.Errorf("four renewals later: got the problems %+v and the log %s", got, &log.text)
		}
		time.Sleep(time.Hour)
		if log.lines("agent") != 2 {
			t.Errorf("got the log %s", &log.text)
		}
	})
}
