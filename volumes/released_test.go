package volumes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"podd/internal/pod"
)

// wantDesired checks which volumes the metrics show as those that pods are to have.
func wantDesired(t *testing.T, m *Mounter, when string, want map[string]int) {
	t.Helper()
	if got := m.counts().desired; !maps.Equal(got, want) {
		t.Errorf("%s: desired volumes are %v, want %v", when, got, want)
	}
}

// A completed pod stays known until its object is deleted. If it runs again, all of this
// begins anew.
func TestVolumesOfACompletedPodAreNeitherDesiredNorFollowed(t *testing.T) {
	f := &fakeCSI{}
	m := newMounter(t, func(o *Options) { o.CSI = f })
	p := aPod("a", ofCSI("data"), empty("disk"))
	all := map[string]int{csiPlugin: 1, emptyDirPlugin: 1}
	follows := func(when string, want ...string) {
		t.Helper()
		f.followed = nil
		m.Changed("a")
		if !slices.Equal(f.followed, want) {
			t.Errorf("%s: followed are %q, want %q", when, f.followed, want)
		}
	}
	mustSetUp(t, m, p)
	wantDesired(t, m, "set up", all)
	follows("set up", "data")
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wantDesired(t, m, "released", nil)
	follows("released")
	mustSetUp(t, m, p)
	wantDesired(t, m, "set up again", all)
	follows("set up again", "data")
	mustTearDown(t, m, "a")
	mustBeGone(t, m, "a")
}

// Its containers may still write: no other pod may have its ReadWriteOncePod volume.
func TestAPodThatIsBeingStoppedHasNotLeft(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("a", empty("disk")))
	m.Stopping("a")
	if m.isGone("a") {
		t.Error("it has left while its containers are being stopped")
	}
	mustTearDown(t, m, "a")
	if !m.isGone("a") {
		t.Error("a removed pod has not left")
	}
}

// Release has not begun: the setup may still mount something.
func TestAPodWhoseSetupDoesNotEndHasNotLeft(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("dead", true)
		defer release()
		mustWait(t, m, aPod("a", empty("disk"), share("n", "dead")))
		all := map[string]int{"test/slow": 1, emptyDirPlugin: 1}
		mustSay(t, m.Release(t.Context(), "a"), `the setup of volume "n"`, "hangs")
		if m.isGone("a") {
			t.Error("it has left while its setup hangs")
		}
		wantDesired(t, m, "while the setup hangs", all)
		ended := errors.New("podd ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ended)
		if err := m.Release(ctx, "a"); !errors.Is(err, ended) || m.isGone("a") {
			t.Errorf("a Release whose context has ended: got %v, and that the pod has left is %t", err, m.isGone("a"))
		}
		release()
		synctest.Wait()
		if err := m.Release(t.Context(), "a"); err != nil || !m.isGone("a") {
			t.Errorf("after the setup has ended: got %v, and that the pod has left is %t", err, m.isGone("a"))
		}
		wantDesired(t, m, "released", nil)
		mustTearDown(t, m, "a")
		mustBeGone(t, m, "a")
	})
}

// Its driver is away: what could be unmounted neither when it completed nor when it was
// removed is still its own.
func TestARemovedPodWhoseVolumeIsStillMountedHasNotLeft(t *testing.T) {
	f := &fakeCSI{}
	m := newMounter(t, func(o *Options) { o.CSI = f })
	mustSetUp(t, m, aPod("a", ofCSI("data")))
	f.setAway(true)
	mustSay(t, m.Release(t.Context(), "a"), `unmount volume "data": driver name x not found`)
	mustTearDown(t, m, "a")
	if pending := m.PendingUnmounts(); len(pending) != 1 || pending[0].UID != pod.UID("a") {
		t.Errorf("got pending unmounts %+v, want that of the pod", pending)
	}
	if m.isGone("a") {
		t.Error("it has left while its volume is mounted")
	}
	f.setAway(false)
	mustTearDown(t, m, "a")
	mustBeGone(t, m, "a")
	if !m.isGone("a") {
		t.Error("it has not left although nothing of it is there")
	}
}
