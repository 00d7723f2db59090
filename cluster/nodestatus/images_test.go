package nodestatus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cluster/nodestatus"
	"podd/internal/pod"
)

func TestTheLargestImagesAreShownWithFiveNames(t *testing.T) {
	many := make([]*pod.Image, 60)
	for i := range many {
		many[i] = &pod.Image{ID: fmt.Sprint(i), Size: uint64(i), Tags: []string{fmt.Sprint("t", i)}}
	}
	for _, c := range []struct {
		what  string
		max   int
		has   []*pod.Image
		sizes []int64
	}{
		{"the default", 50, many, []int64{59, 58}},
		{"one", 1, many, []int64{59}},
		{"none", 0, many, nil},
		{"no bound", -1, many, []int64{59, 58, 57}},
	} {
		got := nodestatus.NewImages(nodestatus.ImagesConfig{Max: c.max, MaxAge: time.Minute, List: func(context.Context) ([]*pod.Image, error) { return c.has, nil }}).Current(t.Context())
		want := c.max
		if want < 0 {
			want = len(c.has)
		}
		if len(got) != want {
			t.Errorf("%s: got %d images, want %d", c.what, len(got), want)
		}
		for i, size := range c.sizes {
			if got[i].SizeBytes != size {
				t.Errorf("%s: image %d has size %d, want %d", c.what, i, got[i].SizeBytes, size)
			}
		}
	}
	named := []*pod.Image{{ID: "x", Tags: []string{"t3", "t1", "t2", "t4"}, Digests: []string{"d2", "d1"}}, {ID: "y", Size: 1}}
	got := nodestatus.NewImages(nodestatus.ImagesConfig{Max: 50, List: func(context.Context) ([]*pod.Image, error) { return named, nil }}).Current(t.Context())
	if want := []string{"d1", "d2", "t1", "t2", "t3"}; len(got) != 2 || !slices.Equal(got[1].Names, want) || len(got[0].Names) != 0 {
		t.Errorf("got %+v, want the last with %q", got, want)
	}
}

func TestTheRuntimeIsAskedForImagesAfterChangesAndOtherwiseRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, has, fails := 0, []*pod.Image{{ID: "a", Size: 1}}, error(nil)
		images := nodestatus.NewImages(nodestatus.ImagesConfig{Max: 50, MaxAge: 5 * time.Minute, List: func(context.Context) ([]*pod.Image, error) {
			asked++
			return has, fails
		}})
		for range 30 { // five minutes
			images.Current(t.Context())
			time.Sleep(10 * time.Second)
		}
		if asked != 1 {
			t.Errorf("an idle node asked %d times in five minutes", asked)
		}
		has = append(has, &pod.Image{ID: "b", Size: 2})
		images.Current(t.Context())
		if got := images.Current(t.Context()); len(got) != 2 || asked != 2 {
			t.Errorf("another's image after five minutes: got %v, asked %d times", got, asked)
		}
		has = has[:1]
		images.Invalidate()
		if got := images.Current(t.Context()); len(got) != 1 || asked != 3 {
			t.Errorf("podd removed one: got %v, asked %d times", got, asked)
		}
		fails = errors.New("away")
		images.Invalidate()
		var got []v1.ContainerImage
		for range 3 {
			got = images.Current(t.Context())
		}
		if len(got) != 1 || asked != 6 {
			t.Errorf("the runtime is away: got %v, asked %d times", got, asked)
		}
	})
}

func TestImagesOfOneSizeAreInTheOrderOfTheirIDs(t *testing.T) {
	has := []*pod.Image{{ID: "c", Size: 1, Tags: []string{"c"}}, {ID: "a", Size: 1, Tags: []string{"a"}}, {ID: "big", Size: 2, Tags: []string{"big"}}, {ID: "b", Size: 1, Tags: []string{"b"}}}
	before := slices.Clone(has)
	images := nodestatus.NewImages(nodestatus.ImagesConfig{Max: 3, List: func(context.Context) ([]*pod.Image, error) { return has, nil }})
	var got []string
	for _, image := range images.Current(t.Context()) {
		got = append(got, image.Names...)
	}
	if want := []string{"big", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Equal(has, before) { // others may have the runtime's answer, too
		t.Errorf("the list that was passed has another order")
	}
}

func TestWhyImagesCannotBeListedIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	var fails error
	images := nodestatus.NewImages(nodestatus.ImagesConfig{
		Max: 50, Log: slog.New(slog.NewTextHandler(&log, nil)), List: func(context.Context) ([]*pod.Image, error) { return nil, fails },
	})
	stopping, stop := context.WithCancel(t.Context())
	stop()
	for _, step := range []struct {
		ctx   context.Context
		fails error
		lines int // so far
	}{
		{t.Context(), errors.New("away"), 1}, {t.Context(), errors.New("broken"), 2}, {t.Context(), nil, 2}, {t.Context(), errors.New("broken"), 3}, {stopping, errors.New("canceled"), 3},
	} {
		fails = step.fails
		for range 3 {
			images.Current(step.ctx)
		}
		if got := strings.Count(log.String(), "cannot list the images"); got != step.lines {
			t.Errorf("%v: got %d lines, want %d: %s", step.fails, got, step.lines, log.String())
		}
	}
}
