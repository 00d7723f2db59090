package cri_test

import "testing"

func TestAPodHasUsedTheImagesOfItsContainersDeadOnesToo(t *testing.T) {
	r := newRig(t)
	p, other := aPod("web"), aPod("other")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	if err := r.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		of   string
		want bool
	}{"its image": {r.id, true}, "another": {"sha256:other", false}} {
		if used, err := r.PodUsedImage(t.Context(), p.UID, c.of); used != c.want || err != nil {
			t.Errorf("%s: got %v (%v), want %v", what, used, err, c.want)
		}
	}
	if used, err := r.PodUsedImage(t.Context(), other.UID, r.id); used || err != nil {
		t.Errorf("another pod: got %v (%v), want false", used, err)
	}
}
