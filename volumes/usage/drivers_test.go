package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// says returns a driver with these stats.
func says(s pod.VolumeStats) func(context.Context) (pod.VolumeStats, error) {
	return func(context.Context) (pod.VolumeStats, error) { return s, nil }
}

var ofADriver = pod.VolumeStats{CapacityBytes: 1000, UsedBytes: 600, AvailableBytes: 400, Inodes: 50, InodesUsed: 20, InodesFree: 30}

// notFileSystem returns a Meter that fails the test if statfs is called for one of these
// volumes.
func (d *disk) notFileSystem(t *testing.T, volumes ...string) *Meter {
	return d.stated(func(path string) error {
		if slices.Contains(volumes, path) {
			t.Errorf("statfs was called for %s", path)
		}
		return nil
	})
}

// For volumes with a claim and inline ones. Without the driver's stats, statfs is used.
func TestStatisticsAreTheDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.drivers["mine"], d.drivers["inline"] = says(ofADriver), says(pod.VolumeStats{UsedBytes: 5})
		inline := v1.Volume{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}}
		p := aPod(claimed("mine", "claim"), inline, claimed("plain", "other"))
		got := d.notFileSystem(t, "mine", "inline").Pods(t.Context(), []*v1.Pod{p})[0]
		if u := used(got); len(u) != 3 || u["mine"] != 600 || u["inline"] != 5 || u["plain"] != 60 {
			t.Fatalf("got %v, want the drivers' stats for two, and statfs for the third", u)
		}
		mine := got.VolumeStats[0]
		if *mine.CapacityBytes != 1000 || *mine.AvailableBytes != 400 || *mine.Inodes != 50 || *mine.InodesUsed != 20 || *mine.InodesFree != 30 ||
			mine.Time.IsZero() || mine.PVCRef == nil || mine.PVCRef.Name != "claim" {
			t.Errorf("got %+v", mine)
		}
		if *got.EphemeralStorage.UsedBytes != 0 {
			t.Errorf("a driver's volume counts as ephemeral storage: %d", *got.EphemeralStorage.UsedBytes)
		}
	})
}

// However many requests there are, and not at all without requests.
func TestADriverIsNotCalledWhileItsStatsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.drivers["mine"] = says(ofADriver)
		m, pods := d.notFileSystem(t, "mine"), []*v1.Pod{aPod(claimed("mine", "claim"))}
		for range 600 {
			m.Pods(t.Context(), pods)
			m.Claims(t.Context(), pods)
			time.Sleep(time.Second)
		}
		before := d.called("mine")
		if before < 5 || before > 11 {
			t.Errorf("the driver was called %d times in ten minutes, want once in one to two", before)
		}
		time.Sleep(time.Hour)
		if n := d.called("mine"); n != before {
			t.Errorf("the driver was called %d times without a request", n-before)
		}
	})
}

// A request waits a moment for a call that it starts, and not for one in progress. The
// other volumes have statistics, and so has this one once the driver is back.
func TestADriverThatHangsBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 2 * time.Minute // the timeout of the driver's call
		d := newDisk()
		var back atomic.Bool
		d.drivers["dead"] = func(ctx context.Context) (pod.VolumeStats, error) {
			if back.Load() {
				return ofADriver, nil
			}
			select {
			case <-time.After(patience):
				return pod.VolumeStats{}, errors.New("deadline exceeded")
			case <-ctx.Done():
				return pod.VolumeStats{}, context.Cause(ctx)
			}
		}
		d.drivers["alive"] = says(ofADriver)
		m := d.notFileSystem(t, "dead", "alive")
		pods := []*v1.Pod{aPod(claimed("dead", "dead"), claimed("alive", "alive"), claimed("plain", "plain"))}
		for i := range 100 {
			began := time.Now()
			u := used(m.Pods(t.Context(), pods)[0])
			if len(u) != 2 || u["alive"] != 600 || u["plain"] != 60 {
				t.Fatalf("ask %d: got %v, want the other two", i, u)
			}
			if took := time.Since(began); i == 0 && took != readWait || i > 0 && took != 0 {
				t.Fatalf("ask %d took %v, want a moment, and once", i, took)
			}
			time.Sleep(time.Second)
		}
		if n := d.called("dead"); n != 1 {
			t.Errorf("the driver that hangs was called %d times, want once at a time", n)
		}
		back.Store(true)
		time.Sleep(patience + 2*m.statsPeriod)
		if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 3 || u["dead"] != 600 {
			t.Errorf("after it came back: got %v", u)
		}
	})
}

// Neither its last stats are used nor statfs, which may be misleading.
func TestAnUnavailableDriverLeavesNoStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.drivers["mine"] = says(ofADriver)
		m, pods := d.notFileSystem(t, "mine"), []*v1.Pod{aPod(claimed("mine", "claim"))}
		if got := m.Claims(t.Context(), pods); len(got) != 1 {
			t.Fatalf("got %v", got)
		}
		d.mu.Lock()
		d.drivers["mine"] = func(context.Context) (pod.VolumeStats, error) {
			return pod.VolumeStats{}, errors.New("driver name x not found in the list of registered CSI drivers")
		}
		d.mu.Unlock()
		time.Sleep(2 * m.statsPeriod)
		if got, u := m.Claims(t.Context(), pods), used(m.Pods(t.Context(), pods)[0]); len(got) != 0 || len(u) != 0 {
			t.Errorf("got %v and %v, want nothing", got, u)
		}
	})
}

// TestADriverIsAskedOfAFewVolumesAtATime: of all of them in the end, each once, and another
// driver's volumes do not wait for that.
func TestADriverIsAskedOfAFewVolumesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const volumes, takes = 100, 30 * time.Second
		d, p := newDisk(), aPod()
		var now, most atomic.Int32
		for i := range volumes {
			slow, quick := fmt.Sprint("slow/", i), fmt.Sprint("quick/", i)
			d.drivers[slow] = func(context.Context) (pod.VolumeStats, error) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				time.Sleep(takes)
				return ofADriver, nil
			}
			d.drivers[quick] = says(ofADriver)
			p.Spec.Volumes = append(p.Spec.Volumes, claimed(slow, slow), claimed(quick, quick))
			use(p)
		}
		m, pods := d.stated(fine), []*v1.Pod{p}
		if n := len(m.Claims(t.Context(), pods)); n != volumes {
			t.Errorf("at first there are figures of %d volumes, want those of the quick driver's %d", n, volumes)
		}
		time.Sleep(volumes / parallelDriverCalls * takes)
		synctest.Wait()
		began := time.Now()
		if n := len(m.Claims(t.Context(), pods)); n < volumes || time.Since(began) > readWait {
			t.Errorf("while it is asked there are figures of %d volumes, after %v", n, time.Since(began))
		}
		time.Sleep(takes)
		for i := range volumes {
			if slow := fmt.Sprint("slow/", i); d.called(slow) == 0 {
				t.Errorf("nobody asked of %s", slow)
			}
		}
		if got := most.Load(); got != parallelDriverCalls {
			t.Errorf("the driver was asked of %d volumes at a time, want %d", got, parallelDriverCalls)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(m.driverLimiter.drivers) > 0 {
			t.Errorf("%v are remembered that nobody asks", m.driverLimiter.drivers)
		}
	})
}

// TestWhoGivesUpWaitingForADriverTakesNoPlace of those that come after.
func TestWhoGivesUpWaitingForADriverTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a driverLimiter
		var leave []func()
		for range parallelDriverCalls {
			l, err := a.acquire(t.Context(), "d")
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.acquire(ctx, "d"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that it waits in vain", err)
		}
		for _, l := range leave {
			l()
		}
		if len(a.drivers) > 0 {
			t.Errorf("%v are remembered", a.drivers)
		}
	})
}
