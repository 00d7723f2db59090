package cri_test

import (
	"errors"
	"testing"

	"podd/cri"
	"podd/cri/critest"
	"podd/internal/pod"
)

func TestTheRuntimeTellsWhatAContainerTakes(t *testing.T) {
	r := newRig(t)
	r.srv.Script("app", critest.Script{Layer: 7 << 20})
	id, err := r.CreateContainer(t.Context(), r.request(t, aPod("a"), r.sandbox(t, aPod("a"), 0), 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	got, err := r.LayerUsage(t.Context(), id)
	if want := (cri.LayerUsage{Bytes: 7 << 20, Inodes: 1, Mountpoint: critest.LayersOn}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if _, err := r.LayerUsage(t.Context(), "gone"); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("of a container that is gone: got %v, want %v", err, pod.ErrNotFound)
	}
}
