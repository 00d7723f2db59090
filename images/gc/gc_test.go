package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"podd/internal/pod"
)

const gib = 1 << 30

func TestWhenRoomIsMade(t *testing.T) {
	usual := Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinFree: gib}
	for _, tc := range []struct {
		name      string
		policy    Policy
		disk      Disk
		available uint64 // to be reached; 0 for nothing to do
	}{
		{"room enough", usual, Disk{Capacity: 100 * gib, Available: 16 * gib}, 0},
		{"at the threshold", usual, Disk{Capacity: 100 * gib, Available: 15 * gib}, 20 * gib},
		{"full", usual, Disk{Capacity: 100 * gib}, 20 * gib},
		{"small disk, by its floor", usual, Disk{Capacity: 6 * gib, Available: gib - 1}, gib + gib/4},
		{"small disk, room", usual, Disk{Capacity: 6 * gib, Available: gib + 1}, 0},
		{"tiny disk: the floor is a fifth", usual, Disk{Capacity: 2 * gib, Available: 2 * gib / 5}, 0},
		{"tiny disk, below", usual, Disk{Capacity: 2 * gib, Available: 2*gib/5 - 1}, 2*gib/5 + 2*gib/20},
		{"big disk, floor below the percentage", Policy{HighThresholdPercent: 99, LowThresholdPercent: 98, MinFree: gib}, Disk{Capacity: 50 * gib, Available: gib / 2}, 1.25 * gib},
		{"no floor", Policy{HighThresholdPercent: 99, LowThresholdPercent: 98}, Disk{Capacity: 20 * gib, Available: gib / 2}, 0},
		{"never", Policy{HighThresholdPercent: 100, LowThresholdPercent: 80, MinFree: gib}, Disk{Capacity: 100 * gib}, 0},
		{"always", Policy{HighThresholdPercent: 0, LowThresholdPercent: 0}, Disk{Capacity: 100, Available: 100}, 100},
	} {
		// Divided before it is multiplied, so that no disk overflows: off by less
		// than a hundred bytes.
		if got := tc.policy.targetAvailable(tc.disk); got > tc.available || tc.available-got > 100 {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.available)
		}
	}
}

func anImage(id string, more ...func(*pod.Image)) *pod.Image {
	i := &pod.Image{ID: id, Tags: []string{"reg.test/" + id + ":1"}, Digests: []string{"reg.test/" + id + "@sha256:" + strings.Repeat("a", 64)}, Size: 10}
	for _, m := range more {
		m(i)
	}
	return i
}

func pinned(i *pod.Image) { i.Pinned = true }

func TestWhichImagesMayGo(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	in := input{
		now: now, policy: Policy{MinAge: 2 * time.Minute, MaxAge: 24 * time.Hour},
		images: []*pod.Image{
			anImage("recent"), anImage("used"), anImage("tagged"), anImage("digested"), anImage("pinned", pinned),
			anImage("lru2"), anImage("lru1"), anImage("never2"), anImage("never1"), anImage("old"), anImage("young"),
		},
		needed: map[string]bool{"used": true, "reg.test/tagged:1": true, "reg.test/digested@sha256:" + strings.Repeat("a", 64): true},
		records: map[string]record{
			"recent":   {firstSeen: ago(time.Hour), lastUsed: ago(time.Minute)},
			"used":     {firstSeen: ago(48 * time.Hour)},
			"tagged":   {firstSeen: ago(48 * time.Hour)},
			"digested": {firstSeen: ago(48 * time.Hour)},
			"pinned":   {firstSeen: ago(48 * time.Hour)},
			"lru1":     {firstSeen: ago(3 * time.Hour), lastUsed: ago(2 * time.Hour)},
			"lru2":     {firstSeen: ago(5 * time.Hour), lastUsed: ago(time.Hour)},
			"never1":   {firstSeen: ago(4 * time.Hour)},
			"never2":   {firstSeen: ago(3 * time.Hour)},
			"old":      {firstSeen: ago(48 * time.Hour)},
			"young":    {firstSeen: ago(2*time.Minute - 1)},
		},
	}
	all, old, young := in.removable()
	var got []string
	for _, i := range all {
		got = append(got, i.ID)
	}
	if want := []string{"old", "never1", "never2", "lru1", "lru2", "recent"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(old) != 1 || !old["old"] || young != 1 {
		t.Errorf("too old: got %v, want old; too young: got %d, want 1", old, young)
	}
}

// diskful is a runtime whose images fill a disk.
type diskful struct {
	mu       sync.Mutex
	images   []*pod.Image
	used     []string
	fails    map[string]error
	down     error
	capacity uint64
	others   uint64   // bytes of the disk used otherwise
	theirs   []string // images of other agents' containers
	removed  []string
	events   []string
}

func (s *diskful) ListImages(context.Context) ([]*pod.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images, s.down
}

func (s *diskful) ContainerImages(context.Context) (own, others []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.theirs, s.down
}

// wait lets time pass, then changes something.
func (s *diskful) wait(d time.Duration, change func()) {
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if change != nil {
		change()
	}
}

func (s *diskful) RemoveImage(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails[id]; err != nil {
		return err
	}
	s.images = slices.DeleteFunc(slices.Clone(s.images), func(i *pod.Image) bool { return i.ID == id })
	s.removed = append(s.removed, id)
	return nil
}

func (s *diskful) disk(context.Context) (Disk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.others
	for _, i := range s.images {
		used += i.Size
	}
	return Disk{Capacity: s.capacity, Available: s.capacity - min(used, s.capacity)}, nil
}

func (s *diskful) NodeEvent(eventType, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, eventType+" "+reason+" "+message)
}

// gone returns the removed images, according to the events.
func (s *diskful) gone() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed)
}

func (s *diskful) reported() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func (s *diskful) config() Config {
	return Config{
		Runtime: s, Disk: s.disk, Recorder: s, Policy: Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute},
		WantedImages: func() ([]string, bool) { return nil, true },
	}
}

// collecting runs a Collector in a bubble.
func collecting(t *testing.T, cfg Config, test func(c *Collector)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		test(c)
		stop()
		<-ended
	})
}

func TestRoomIsMadeWithTheLeastRecentlyUsed(t *testing.T) {
	s := &diskful{capacity: 1000, others: 200}
	for i := range 8 {
		s.images = append(s.images, anImage(fmt.Sprint("i", i), func(i *pod.Image) { i.Size = 100 }))
	}
	s.used = []string{"i0"}
	cfg := s.config()
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	cfg.WantedImages = func() ([]string, bool) { return []string{"reg.test/i1:1"}, true }
	collecting(t, cfg, func(c *Collector) {
		if len(s.gone()) != 0 {
			t.Errorf("within the least age: got %v removed", s.gone())
		}
		s.wait(0, func() { s.used = []string{"i0", "i3"} })
		s.wait(2*time.Minute, nil) // 100 % used; i3 was just used
		if want := []string{"i2", "i4"}; !slices.Equal(s.gone(), want) {
			t.Errorf("got %v removed, want %v: those seen first go first, down to 80 %%", s.gone(), want)
		}
		s.wait(0, func() { s.used, s.others = nil, s.others+400 })
		s.wait(period, nil)
		if want := []string{"i2", "i4", "i5", "i6", "i7", "i0"}; !slices.Equal(s.gone(), want) {
			t.Errorf("got %v removed, want %v: the most recently used goes last, what a manifest names never", s.gone(), want)
		}
		if len(s.reported()) != 0 {
			t.Errorf("events: got %q", s.reported())
		}
		if n := testutil.ToFloat64(c.removed.WithLabelValues("space")); n != 6 {
			t.Errorf("metric: got %v, want 6", n)
		}
	})
}

// TestImagesThatMayBeAnothersStay: of the images on a shared runtime that no
// container uses now, only those that podd has used itself are known to be its
// own.
func TestImagesThatMayBeAnothersStay(t *testing.T) {
	s := &diskful{capacity: 1000, others: 600}
	for i := range 4 {
		s.images = append(s.images, anImage(fmt.Sprint("i", i), func(i *pod.Image) { i.Size = 100 }))
	}
	s.used, s.theirs = []string{"i0", "i2"}, []string{"i1", "i2"}
	collecting(t, s.config(), func(*Collector) {
		s.wait(period, func() { s.used, s.theirs = nil, nil })
		s.wait(period, nil)
		if want := []string{"i0", "i2"}; !slices.Equal(s.gone(), want) {
			t.Errorf("got %v removed, want %v: the others may be another's", s.gone(), want)
		}
	})
}

func TestNothingIsRemovedBeforeAllSourcesAreReady(t *testing.T) {
	s := &diskful{capacity: 1000, images: []*pod.Image{anImage("a", func(i *pod.Image) { i.Size = 950 })}}
	cfg := s.config()
	var spoken atomic.Bool
	cfg.WantedImages = func() ([]string, bool) { return nil, spoken.Load() }
	collecting(t, cfg, func(*Collector) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.gone()) != 0 {
			t.Fatal("removed while a source was not ready")
		}
		spoken.Store(true)
		time.Sleep(period)
		synctest.Wait()
		if len(s.gone()) != 1 {
			t.Error("not removed after it was ready")
		}
	})
}

func TestOldImagesGoHoweverMuchRoomThereIs(t *testing.T) {
	s := &diskful{capacity: 1 << 40, images: []*pod.Image{anImage("a"), anImage("b"), anImage("p", pinned)}, used: []string{"b"}}
	cfg := s.config()
	cfg.Policy.MaxAge = time.Hour
	collecting(t, cfg, func(c *Collector) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.gone()) != 0 {
			t.Fatalf("at its age: got %v removed", s.gone())
		}
		time.Sleep(period)
		synctest.Wait()
		s.wait(0, func() { s.used, s.images = nil, append(s.images, anImage("pulled")) })
		s.wait(period, nil)
		if !slices.Equal(s.gone(), []string{"a"}) {
			t.Fatalf("got %v removed, want a only: b was just used, pulled is new", s.gone())
		}
		time.Sleep(70 * time.Minute)
		synctest.Wait()
		if !slices.Equal(s.gone(), []string{"a", "b", "pulled"}) {
			t.Errorf("got %v removed", s.gone())
		}
		if n := testutil.ToFloat64(c.removed.WithLabelValues("age")); n != 3 {
			t.Errorf("metric: got %v, want 3", n)
		}
	})
}

func TestADiskFullOfOtherThingsIsReportedOnceInAWhile(t *testing.T) {
	s := &diskful{capacity: 1000 * gib, others: 950 * gib, images: []*pod.Image{anImage("a", func(i *pod.Image) { i.Size = 10 * gib })}}
	cfg := s.config()
	cfg.DescribeUsage = func(context.Context) string { return "Pods have it." }
	collecting(t, cfg, func(*Collector) {
		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
	if !slices.Equal(s.gone(), []string{"a"}) {
		t.Errorf("removed: got %v", s.gone())
	}
	free, failed := 0, 0
	for _, e := range s.reported() {
		switch {
		case strings.HasPrefix(e, "Warning FreeDiskSpaceFailed Insufficient free disk space on the node's image filesystem (9") && strings.HasSuffix(e, " Pods have it."):
			free++
		case strings.HasPrefix(e, "Warning ImageGCFailed Insufficient"):
			failed++
		default:
			t.Errorf("got event %q", e)
		}
	}
	// The kubelet emits each of them 24 times in two hours.
	if free < 2 || free > 6 || failed < 1 || failed > 5 {
		t.Errorf("got %d FreeDiskSpaceFailed and %d ImageGCFailed in two hours", free, failed)
	}
}

func TestImagesThatCannotBeRemovedAreSkipped(t *testing.T) {
	s := &diskful{capacity: 1000, fails: map[string]error{"a": errors.New("read-only file system")}}
	for _, id := range []string{"a", "b"} {
		s.images = append(s.images, anImage(id, func(i *pod.Image) { i.Size = 450 }))
	}
	collecting(t, s.config(), func(*Collector) {
		time.Sleep(period)
		synctest.Wait()
		if !slices.Equal(s.gone(), []string{"b"}) {
			t.Errorf("got %v removed, want b", s.gone())
		}
	})
}

func TestAFullDiskTriggersACollectionAtOnceAndNotInALoop(t *testing.T) {
	s := &diskful{capacity: 1000, images: []*pod.Image{anImage("a", func(i *pod.Image) { i.Size = 950 })}}
	cfg := s.config()
	var looks atomic.Int32
	cfg.Disk = func(ctx context.Context) (Disk, error) { looks.Add(1); return s.disk(ctx) }
	collecting(t, cfg, func(c *Collector) {
		time.Sleep(3 * time.Minute)
		c.NotifyDiskFull()
		synctest.Wait()
		if !slices.Equal(s.gone(), []string{"a"}) {
			t.Errorf("got %v removed, want a", s.gone())
		}
		before := looks.Load()
		for range 1000 {
			c.NotifyDiskFull()
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := looks.Load() - before; n > 1 {
			t.Errorf("got %d collections in 10 s", n)
		}
	})
}

func TestNoCapacityAndNoRuntime(t *testing.T) {
	s := &diskful{}
	collecting(t, s.config(), func(*Collector) {
		if !slices.Equal(s.reported(), []string{"Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"}) {
			t.Errorf("got events %q", s.reported())
		}
		s.wait(0, func() { s.events, s.down = nil, fmt.Errorf("list: %w", pod.ErrUnavailable) })
		s.wait(time.Hour, nil)
		if len(s.reported()) != 0 {
			t.Errorf("runtime away: got events %q", s.reported())
		}
	})
}

// TestAPullThatFillsTheDiskGetsRoom although the disk is no longer full once the
// pull has failed and its data is gone.
func TestAPullThatFillsTheDiskGetsRoom(t *testing.T) {
	s := &diskful{capacity: 20 * gib, images: []*pod.Image{
		anImage("a", func(i *pod.Image) { i.Size = gib }), anImage("b", func(i *pod.Image) { i.Size = gib }), anImage("c", func(i *pod.Image) { i.Size = gib }),
	}, used: []string{"c"}}
	collecting(t, s.config(), func(c *Collector) {
		s.wait(3*time.Minute, nil)
		if len(s.gone()) != 0 {
			t.Fatalf("got %v removed, want none: there is room", s.gone())
		}
		c.NotifyDiskFull()
		s.wait(time.Second, nil)
		if !slices.Equal(s.gone(), []string{"a", "b"}) {
			t.Errorf("got %v removed, want those that nobody uses", s.gone())
		}
		c.NotifyDiskFull()
		s.wait(time.Hour, nil)
		if len(s.gone()) != 2 || len(s.reported()) != 0 {
			t.Errorf("got %v removed, events %q", s.gone(), s.reported())
		}
	})
}

// TestEverythingUnusedGoesOnRequest, also where collections are disabled, but nothing before
// it is known what is wanted.
func TestEverythingUnusedGoesOnRequest(t *testing.T) {
	for _, high := range []int{85, 100} {
		s := &diskful{capacity: 1000, images: []*pod.Image{
			anImage("a", func(i *pod.Image) { i.Size = 5 }), anImage("b", func(i *pod.Image) { i.Size = 5 }), anImage("pinned", pinned), anImage("wanted"),
		}}
		cfg := s.config()
		cfg.Policy.HighThresholdPercent, cfg.Policy.LowThresholdPercent = high, 80
		var spoken atomic.Bool
		cfg.WantedImages = func() ([]string, bool) { return []string{"reg.test/wanted:1"}, spoken.Load() }
		ctx := context.WithoutCancel(t.Context()) // of no bubble
		collecting(t, cfg, func(c *Collector) {
			if n, err := c.RemoveUnused(ctx); n != 0 || err != nil {
				t.Errorf("high %d: before a source was ready: removed %d, %v", high, n, err)
			}
			spoken.Store(true)
			time.Sleep(cfg.Policy.MinAge + time.Second) // they were first seen above
			if n, err := c.RemoveUnused(ctx); n != 2 || err != nil || len(s.gone()) != 2 {
				t.Errorf("high %d: removed %d (%v), %v", high, n, s.gone(), err)
			}
			if n, err := c.RemoveUnused(ctx); n != 0 || err != nil {
				t.Errorf("high %d: removed %d more, %v", high, n, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New((&diskful{}).config()).RemoveUnused(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without Run: got %v", err)
	}
}
