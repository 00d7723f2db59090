package node

import (
	"context"
	"errors"
	"testing"

	"podd/internal/pod"
)

// imported is an image directory that has an image, or not.
type imported struct {
	has, there bool
	asked      []string
}

func (i *imported) ReportMissing(image string) {
	i.asked = append(i.asked, image)
	i.there = i.has
}
func (i *imported) WaitBriefly(ctx context.Context) error { return ctx.Err() }

func TestASandboxImageThatWasRemovedIsImportedAgain(t *testing.T) {
	for _, tt := range []struct {
		what               string
		has, there, broken bool
		name               string
		asked, want        bool
	}{
		{what: "its archive is there", name: "pause", has: true, asked: true, want: true},
		{what: "its archive is gone", name: "pause", asked: true},
		{what: "the image is there, and something else has failed", name: "pause", has: true, there: true},
		{what: "the runtime does not respond", name: "pause", has: true, broken: true},
		{what: "another runtime's image", has: true},
	} {
		dir := &imported{has: tt.has, there: tt.there}
		status := func(context.Context, string) (*pod.Image, error) {
			switch {
			case tt.broken:
				return nil, errors.New("no answer")
			case dir.there:
				return &pod.Image{}, nil
			}
			return nil, nil
		}
		if got := (sandboxImage{tt.name, status, dir}).reimportIfMissing(t.Context()); got != tt.want || (len(dir.asked) > 0) != tt.asked {
			t.Errorf("%s: got %t, imports of %q", tt.what, got, dir.asked)
		}
	}
}
