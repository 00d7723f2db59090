package nodestatus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	s.lease = l
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
		if got := s.did(); len(got) != 8 || got[1] != "create lease" || got[2] != "update lease" {
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
	leasing(t, s, func() *v1.Node { return nil }, func() {
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
