package stats

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

// deaf is a client that takes nothing.
type deaf struct{}

var errReset = errors.New("connection reset")

func (deaf) Write([]byte) (int, error) { return 0, errReset }

func TestAnAnswerThatDoesNotArriveIsAnError(t *testing.T) {
	c := newMachine(t, true).collector()
	for name, write := range map[string]func(context.Context, io.Writer) error{"resource": c.Resource, "cadvisor": c.Cadvisor} {
		if err := write(t.Context(), deaf{}); !errors.Is(err, errReset) {
			t.Errorf("%s: got %v, want %v", name, err, errReset)
		}
	}
}

func TestAClientThatHasGoneIsToldWhy(t *testing.T) {
	m := newMachine(t, true)
	synctest.Test(t, func(t *testing.T) {
		m.hold = make(chan struct{})
		c := m.collector()
		why := errors.New("the client has gone")
		ctx, leave := context.WithCancelCause(t.Context())
		leave(why)
		for name, ask := range map[string]func() error{
			"summary":  func() error { _, err := c.Summary(ctx, true); return err },
			"resource": func() error { return c.Resource(ctx, io.Discard) },
			"cadvisor": func() error { return c.Cadvisor(ctx, io.Discard) },
		} {
			if err := ask(); !errors.Is(err, why) {
				t.Errorf("%s: got %v, want %v", name, err, why)
			}
		}
		close(m.hold)
		synctest.Wait()
	})
}

// A summary without the node's disk would have it empty: who reads it would think so.
func TestASummaryWithoutTheNodesDiskIsAnError(t *testing.T) {
	m := newMachine(t, true)
	m.noDisk = errors.New("stale file handle")
	c := m.collector()
	if s, err := c.Summary(t.Context(), true); !errors.Is(err, m.noDisk) {
		t.Errorf("got %+v, %v, want %v", s, err, m.noDisk)
	}
	if s, err := c.Summary(t.Context(), false); err != nil || len(s.Pods) != 1 {
		t.Errorf("only CPU and memory: got %+v, %v", s, err)
	}
	all := cadvisor(t, c)
	if all["container_fs_inodes_total"] != nil {
		t.Errorf("got %v", all["container_fs_inodes_total"])
	}
	value(t, all, "container_fs_usage_bytes", "container", "main")
}

func TestACgroupThatCannotBeReadIsLeftOutAndReported(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		c := m.collector()
		var logged bytes.Buffer
		c.cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
		failed := func(want float64) {
			t.Helper()
			all, few := cadvisor(t, c), resources(t, c)
			for name, got := range map[string]float64{
				"container_scrape_error": value(t, all, "container_scrape_error"),
				"scrape_error":           value(t, few, "scrape_error"),
				"resource_scrape_error":  value(t, few, "resource_scrape_error"),
			} {
				if got != want {
					t.Errorf("%s: got %v, want %v", name, got, want)
				}
			}
			if got := has(all, "container_last_seen", "main"); got != (want == 0) {
				t.Errorf("main is shown: got %t", got)
			}
			value(t, all, "container_last_seen", "name", "box")
			value(t, few, "pod_cpu_usage_seconds_total", "pod", "web")
		}
		failed(0)
		m.unreadable(main1, "memory.stat")
		failed(1)
		if text := logged.String(); !strings.Contains(text, main1) || !strings.Contains(text, "memory.stat") {
			t.Errorf("got the log %q, want which file it is", text)
		}
		m.without(main1, "memory.stat")
		m.files(main1, 0, 1e9, 100)
		failed(0)
	})
}

func TestAProblemIsLoggedOnceAndAgainWhenItComesBack(t *testing.T) {
	m := newMachine(t, true)
	synctest.Test(t, func(t *testing.T) {
		c := m.collector()
		var logged bytes.Buffer
		c.cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
		m.add(Group{Path: "/kubepods/podu-1/new", Pod: "u-1", ID: "new"}, 0, 1, 1) // the runtime is asked for it
		for _, step := range []struct {
			fails error
			scrapes,
			want int // lines so far
		}{
			{nil, 2, 0},
			{errors.New("no runtime"), 3, 1},
			{errors.New("another reason"), 3, 2},
			{nil, 1, 2},
			{errors.New("another reason"), 2, 3},
		} {
			m.fails = step.fails
			for range step.scrapes {
				time.Sleep(unknownIDRetry)
				resources(t, c)
			}
			if got := strings.Count(logged.String(), "cannot read all statistics"); got != step.want {
				t.Errorf("%v, after %d scrapes: got %d lines, want %d: %s", step.fails, step.scrapes, got, step.want, logged.String())
			}
		}
		if want := "ask the runtime which containers it has: no runtime"; !strings.Contains(logged.String(), want) {
			t.Errorf("got the log %s, want %q", logged.String(), want)
		}
	})
}

// A runtime that hangs must not delay those who ask for more than it can tell.
func TestARuntimeThatHangsDelaysAnAnswerByTwoSeconds(t *testing.T) {
	m := newMachine(t, true)
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		c := m.collector()
		identify := c.cfg.Identify
		c.cfg.Identify = func(ctx context.Context) ([]pod.Identity, error) { return nil, hangs(ctx) }
		began := time.Now()
		all := resources(t, c)
		if took := time.Since(began); took != 2*time.Second || value(t, all, "node_cpu_usage_seconds_total") != 20 {
			t.Errorf("which containers it has: took %v, want 2s", took)
		}
		c.cfg.Identify = identify
		c.cfg.Images = func(ctx context.Context) (*api.RuntimeStats, error) { return nil, hangs(ctx) }
		began = time.Now()
		s := summary(t, c, true)
		if took := time.Since(began); took != 2*time.Second || s.Node.Runtime != nil || len(s.Pods) != 1 {
			t.Errorf("its file systems: took %v, want 2s; got %+v", took, s)
		}
	})
}

// The runtime may list a container later than its cgroup is there.
func TestTheRuntimeIsAskedAgainForWhatItDidNotKnowAfterFiveSeconds(t *testing.T) {
	m := newMachine(t, true)
	m.add(Group{Path: "/kubepods/podu-1/late", Pod: "u-1", ID: "late"}, 0, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		c := m.collector()
		shown := func() bool { return has(cadvisor(t, c), "container_last_seen", "late") }
		if shown() {
			t.Error("it is shown before anybody knows what it is")
		}
		m.known = append(m.known, pod.Identity{ID: "late", UID: "u-1", Pod: "web", Namespace: "shop", Container: "late"})
		time.Sleep(5*time.Second - time.Nanosecond)
		if before := m.asked.Load(); shown() || m.asked.Load() != before {
			t.Error("the runtime is asked at each scrape")
		}
		time.Sleep(time.Nanosecond)
		if !shown() {
			t.Error("after five seconds it is not shown")
		}
	})
}
