package gc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"podd/internal/pod"
)

func TestImagesAreListedWithTheirUse(t *testing.T) {
	s := &diskful{capacity: 1000, used: []string{"used"}, images: []*pod.Image{
		anImage("used"), anImage("idle", func(i *pod.Image) { i.Size = 50 }), anImage("pinned", pinned), anImage("wanted"),
	}}
	cfg := s.config()
	var spoken atomic.Bool
	cfg.WantedImages = func() ([]string, bool) { return []string{"reg.test/wanted:1"}, spoken.Load() }
	ctx := context.WithoutCancel(t.Context()) // of no bubble
	collecting(t, cfg, func(c *Collector) {
		began := time.Now()
		time.Sleep(time.Minute)
		all, err := c.Images(ctx) // before every source is ready, too
		if err != nil || len(all) != 4 || all[0].ID != "idle" {
			t.Fatalf("got %v, %v; want the largest first", all, err)
		}
		for _, u := range all {
			kept, used := u.Kept != "", !u.LastUsed.IsZero()
			if kept != (u.ID != "idle") || used != (u.ID == "used") || !u.FirstSeen.Equal(began) {
				t.Errorf("%s: kept %q, last used %v, first seen %v", u.ID, u.Kept, u.LastUsed, u.FirstSeen)
			}
		}
	})
}

func TestAnImageIsRemovedOnRequestUnlessSomebodyUsesIt(t *testing.T) {
	long := "sha256:" + strings.Repeat("ab12", 16)
	s := &diskful{capacity: 1000, used: []string{"used"}, images: []*pod.Image{
		anImage("used"), anImage("idle"), anImage("pinned", pinned), anImage("wanted"), anImage(long, func(i *pod.Image) { i.Tags = nil }),
		anImage("sha256:aaaaaa1"), anImage("sha256:aaaaaa2"),
	}}
	cfg := s.config()
	var spoken atomic.Bool
	cfg.WantedImages = func() ([]string, bool) { return []string{"reg.test/wanted:1"}, spoken.Load() }
	ctx := context.WithoutCancel(t.Context())
	collecting(t, cfg, func(c *Collector) {
		if _, err := c.Remove(ctx, "reg.test/idle:1"); !errors.Is(err, errSourcesPending) {
			t.Errorf("before every source is ready: got %v", err)
		}
		spoken.Store(true)
		for name, want := range map[string]string{
			"reg.test/used:1": "a container, a manifest or the image directory has it", "reg.test/pinned:1": "it is pinned", "reg.test/wanted:1": "a container, a manifest",
			"reg.test/none:1": "no image reg.test/none:1", "ab12a": "no image ab12a", "aaaaaa": "the beginning of 2 IDs", "": "no image",
		} {
			if _, err := c.Remove(ctx, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, want %q", name, err, want)
			}
		}
		if _, err := c.Remove(ctx, "reg.test/none:1"); !errors.Is(err, pod.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if len(s.gone()) != 0 {
			t.Fatalf("removed %v", s.gone())
		}
		if i, err := c.Remove(ctx, "reg.test/idle:1"); err != nil || i.ID != "idle" { // however young it is
			t.Errorf("got %v, %v", i, err)
		}
		if i, err := c.Remove(ctx, "ab12ab12"); err != nil || i.ID != long {
			t.Errorf("got %v, %v", i, err)
		}
		if got := strings.Join(s.gone(), " "); got != "idle "+long {
			t.Errorf("removed %s", got)
		}
	})
}
