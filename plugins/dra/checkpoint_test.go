package dra

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// What a driver may have prepared must be known after a power failure.
func TestADriverIsNotCalledForWhatCannotBeWrittenDown(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	clear := r.obstruct()
	r.refused(p, "prepare dynamic resources: checkpoint ResourceClaim state: rename ")
	r.expect(f, "")
	clear()
	r.prepares(p)
	r.expect(f, "prepare default/big/c1")
}

// Also what drivers have prepared is on disk before a container uses it.
func TestAPodDoesNotStartBeforeWhatItsDriversPreparedIsWrittenDown(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	clear := func() {}
	f.prepare = func(_ context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
		clear = r.obstruct()
		return f.usual(q), nil
	}
	r.refused(p, "prepare dynamic resources: checkpoint ResourceClaim state: rename ")
	clear()
	r.prepares(p)
	r.expect(f, "prepare default/big/c1")
	has := r.has(p)
	if r = newRig(t, r); r.has(p) != has {
		t.Errorf("after a restart the container has %q, want %q", r.has(p), has)
	}
}

func TestTheCheckpointIsWrittenOnlyForChanges(t *testing.T) {
	r := newRig(t, nil)
	r.served()
	one, two := aPod("one", "big"), aPod("two", "big")
	r.api.add("big", "c1", gpu, one, two)
	r.prepares(one)
	for _, step := range []struct {
		what    string
		do      func()
		written bool
	}{
		{"prepared already", func() { r.prepares(one) }, false},
		{"another pod", func() { r.prepares(two) }, true},
		{"one has left", func() { r.unprepares(one) }, true},
		{"it has left already", func() { r.unprepares(one) }, false},
		{"both have left", func() { r.unprepares(two) }, true},
	} {
		if err := os.Remove(r.checkpoint.Path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		step.do()
		if _, err := os.Stat(r.checkpoint.Path); (err == nil) != step.written {
			t.Errorf("%s: got %v, want it to be written: %v", step.what, err, step.written)
		}
	}
}

func TestAPodThatHasLeftASharedClaimDoesNotHoldItAfterARestart(t *testing.T) {
	r := newRig(t, nil)
	r.served()
	one, two := aPod("one", "big"), aPod("two", "big")
	r.api.add("big", "c1", gpu, one, two)
	r.prepares(one)
	r.prepares(two)
	r.unprepares(one)
	if r = newRig(t, r); r.HasPrepared(one.UID) || !r.HasPrepared(two.UID) {
		t.Errorf("the first holds it: %v, the second: %v, want the second alone", r.HasPrepared(one.UID), r.HasPrepared(two.UID))
	}
}

func TestADamagedCheckpointThatCannotBeSetAsideIsSaid(t *testing.T) {
	r := newRig(t, nil)
	if err := os.WriteFile(r.checkpoint.Path, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.checkpoint.Path+".broken", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	all := newRig(t, r).Problems()
	if len(all) != 1 || !strings.Contains(all[0].Message, "rename ") || !strings.Contains(all[0].Hint, "before podd overwrites it") {
		t.Errorf("got %v, want why, and what to do", all)
	}
}
