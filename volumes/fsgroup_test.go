package volumes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/slots"
)

// full takes all slots, for as long as it pleases.
func full(o *fsGroupApplier) (release func()) {
	o.slots = slots.New(parallelOwnershipChanges, 0, 0)
	var leave []func()
	for range parallelOwnershipChanges {
		l, _ := o.slots.Acquire(context.Background(), slots.Rest{}) // there is room
		leave = append(leave, l)
	}
	return func() {
		for _, l := range leave {
			l()
		}
	}
}

func TestALongChangeOfOwnershipHasUpstreamsEvents(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		group := int64(2000)
		p := aPod("u1", empty("e"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		release := full(m.fsGroups)
		mustWait(t, m, p)
		time.Sleep(29 * time.Second)
		if told := s.told(); len(told) > 0 {
			t.Errorf("events too early: %q", told)
		}
		time.Sleep(2*time.Minute + 2*time.Second)
		release()
		synctest.Wait()
		mustBeReady(t, m, p)
		time.Sleep(time.Hour)
		const where = "Warning VolumePermissionChangeInProgress: Setting volume ownership for u1/volumes/kubernetes.io~empty-dir/e"
		told := s.told()
		if len(told) != 3 || !strings.HasPrefix(told[0], where+" is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/") ||
			told[1] != where+", processed 0 files." || told[2] != told[1] {
			t.Errorf("events %q", told)
		}
	})
}

func TestAChangeOfOwnershipEndsWithItsPodAndBlocksNoOther(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, _ *store) {
		group := int64(2000)
		p := aPod("u1", empty("e"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		release := full(m.fsGroups)
		mustWait(t, m, p)
		mustBeReady(t, m, aPod("u2", empty("e")))
		began := time.Now()
		mustTearDown(t, m, "u1")
		if took := time.Since(began); took != 0 {
			t.Errorf("the teardown took %v", took)
		}
		mustBeGone(t, m, "u1")
		release()
	})
}

func TestASlotWhoseHolderHangsIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFSGroupApplier(nil)
		var dones []func()
		for range parallelOwnershipChanges {
			done, err := o.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			dones = append(dones, done)
		}
		began := time.Now()
		done, err := o.acquire(t.Context())
		if took := time.Since(began); err != nil || took != longSetUp {
			t.Errorf("the next waited %v (%v), want %v", took, err, longSetUp)
		}
		done()
		for _, done := range dones {
			done()
		}
		if n := o.slots.InUse(); n != 0 {
			t.Errorf("%d slots are taken", n)
		}
		release := full(o)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errPodGone)
		if _, err := o.acquire(ctx); !errors.Is(err, errPodGone) {
			t.Errorf("got %v, want the context's cause", err)
		}
		release()
	})
}
