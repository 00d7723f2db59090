package usage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/podfs"
)

// stated returns a Meter of d with a fake statfs: file systems of 100 blocks.
func (d *disk) stated(statfs func(path string) error) *Meter {
	m := d.limits(&bytes.Buffer{})
	m.statfs = func(path string) (fileSystem, error) {
		return fileSystem{capacity: 100, free: 40, available: 30, inodes: 10, inodesFree: 7}, statfs(path)
	}
	return m
}

func fine(string) error { return nil }

func claimed(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

func used(s stats.PodStats) map[string]uint64 {
	all := map[string]uint64{}
	for _, v := range s.VolumeStats {
		all[v.Name] = *v.UsedBytes
	}
	return all
}

func TestStatisticsOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.used = map[string]int64{"data": 1000, "memory": 200, logs + "web": 30, "/layer/web-1": 4}
		d.run("web-1")
		p := aPod(empty("data", "", ""), empty("memory", "", v1.StorageMediumMemory), claimed("mine", "claim"),
			v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}})
		p.Status = d.pod.Status
		got := d.stated(fine).Pods(t.Context(), []*v1.Pod{p, {}})
		if len(got) != 2 || got[0].PodRef != (stats.PodReference{Name: "web", Namespace: "default", UID: "u1"}) {
			t.Fatalf("got %+v", got)
		}
		s := got[0]
		if u := used(s); len(u) != 3 || u["data"] != 1000 || u["memory"] != 200 || u["mine"] != 60 {
			t.Errorf("volumes: got %v, want all but the hostPath, with the usage of the file system for the claim's", u)
		}
		mine := s.VolumeStats[2]
		if *mine.CapacityBytes != 100 || *mine.AvailableBytes != 30 || *mine.InodesUsed != 3 || *mine.Inodes != 10 || *mine.InodesFree != 7 ||
			mine.PVCRef == nil || *mine.PVCRef != (stats.PVCReference{Name: "claim", Namespace: "default"}) || mine.Time.IsZero() {
			t.Errorf("the claim's: got %+v", mine)
		}
		if e := s.EphemeralStorage; *e.UsedBytes != 1034 || *e.CapacityBytes != 100 || e.Time.IsZero() {
			t.Errorf("ephemeral storage: got %d of %d, want the sum of what is on disk, 1034", *e.UsedBytes, *e.CapacityBytes)
		}
		if c := s.Containers; len(c) != 1 || c[0].Name != "web" || *c[0].Rootfs.UsedBytes != 4 || *c[0].Logs.UsedBytes != 30 {
			t.Errorf("containers: got %+v", c)
		}
	})
}

// However many requests there are, and not at all without requests.
func TestFreshReadingsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.takes["huge"] = 3 * time.Second
		d.used = map[string]int64{"data": 1, "huge": 2}
		m, pods := d.stated(fine), []*v1.Pod{aPod(empty("data", "", ""), empty("huge", "", ""))}
		began := time.Now()
		if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 1 || u["data"] != 1 || time.Since(began) != readWait {
			t.Errorf("at first: got %v after %v, want what is there after a moment", u, time.Since(began))
		}
		time.Sleep(3 * time.Second)
		for range 600 {
			if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 2 || u["huge"] != 2 {
				t.Fatalf("then: got %v", u)
			}
			time.Sleep(time.Second)
		}
		if n := len(d.walks["data"]); n < 5 || n > 11 {
			t.Errorf("the small one was measured %d times in ten minutes, want once in one to two", n)
		}
		if n := len(d.walks["huge"]); n < 4 || n > 5 {
			t.Errorf("the one of three seconds was measured %d times in ten minutes, want once in two and a half", n)
		}
		before := len(d.walks["data"])
		time.Sleep(time.Hour)
		if n := len(d.walks["data"]); n != before {
			t.Errorf("it was measured %d times without a request", n-before)
		}
		m.Pods(t.Context(), nil)
		if n := len(m.readings); n != 0 {
			t.Errorf("%d readings are kept that nobody requests", n)
		}
		synctest.Wait()
	})
}

// A statfs on one does not return. The other volumes have statistics, this one is left
// out until it is back, and only one goroutine hangs, however many requests there are.
func TestADeadMountBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, alive := newDisk(), make(chan struct{})
		var stuck, asked atomic.Int32
		m := d.stated(func(path string) error {
			if path == "dead" {
				asked.Add(1)
				stuck.Add(1)
				<-alive
				stuck.Add(-1)
			}
			return nil
		})
		pods := []*v1.Pod{aPod(claimed("dead", "dead"), claimed("fine", "fine"))}
		for i := range 100 {
			began := time.Now()
			if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 1 || u["fine"] != 60 {
				t.Fatalf("got %v, want the other one", u)
			}
			if took := time.Since(began); took > readWait || i > 0 && took > 0 && asked.Load() == 1 && stuck.Load() != 1 {
				t.Errorf("it took %v", took)
			}
			time.Sleep(time.Minute)
		}
		if asked.Load() != 1 || stuck.Load() != 1 {
			t.Errorf("statfs was called %d times, and %d goroutines hang in it, want one", asked.Load(), stuck.Load())
		}
		close(alive)
		synctest.Wait()
		if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 2 {
			t.Errorf("after it came back: got %v", u)
		}
	})
}

func TestAReadingThatFailsIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone error
		m := newDisk().stated(func(path string) error {
			if path == "mine" {
				return gone
			}
			return nil
		})
		var log bytes.Buffer
		m.cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		pods := []*v1.Pod{aPod(claimed("mine", "c"))}
		if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 1 {
			t.Fatalf("got %v", u)
		}
		gone = errors.New("stale file handle")
		for range 3 {
			time.Sleep(2 * m.statsPeriod)
			if u := used(m.Pods(t.Context(), pods)[0]); len(u) != 0 {
				t.Errorf("got %v", u)
			}
		}
		if n := strings.Count(log.String(), "stale file handle"); n != 1 {
			t.Errorf("it was logged %d times: %s", n, &log)
		}
	})
}

// With upstream's names; a claim that two pods use has one of each.
func TestVolumesWithAClaimHaveMetrics(t *testing.T) {
	other := aPod(claimed("x", "claim"), v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	other.UID = "u2"
	m := newDisk().stated(fine)
	m.cfg.Dirs = podfs.Dirs{Root: t.TempDir()}
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.Collector(func() []*v1.Pod { return []*v1.Pod{aPod(claimed("mine", "claim"), empty("data", "", "")), other} }))
	want := `
# HELP kubelet_volume_stats_available_bytes Number of available bytes in the volume
# TYPE kubelet_volume_stats_available_bytes gauge
kubelet_volume_stats_available_bytes{namespace="default",persistentvolumeclaim="claim"} 30
kubelet_volume_stats_available_bytes{namespace="default",persistentvolumeclaim="web-scratch"} 30
# HELP kubelet_volume_stats_inodes_used Number of used inodes in the volume
# TYPE kubelet_volume_stats_inodes_used gauge
kubelet_volume_stats_inodes_used{namespace="default",persistentvolumeclaim="claim"} 3
kubelet_volume_stats_inodes_used{namespace="default",persistentvolumeclaim="web-scratch"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_inodes_used"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 15 {
		t.Errorf("got %d series (%v), want six for each claim, how volumes were measured, and how long that took", n, err)
	}
}

// As in upstream: statfs would return the numbers of /dev.
func TestABlockDeviceHasOnlyItsCapacity(t *testing.T) {
	devices, err := filepath.Glob("/sys/class/block/*/size")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range devices {
		name := filepath.Base(filepath.Dir(file))
		text, err := os.ReadFile(file)
		sectors, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		f, openErr := os.Open("/dev/" + name)
		if err != nil || openErr != nil || sectors == 0 {
			continue
		}
		_ = f.Close()
		if size, device := deviceSize("/dev/" + name); !device || size != sectors*512 {
			t.Errorf("%s: got %d (%v), want %d", name, size, device, sectors*512)
		}
		m := newDisk().stated(fine)
		m.cfg.Path = func(*v1.Pod, string) (string, error) { return "/dev/" + name, nil }
		got := m.Claims(t.Context(), []*v1.Pod{aPod(claimed("mine", "claim"))})
		if len(got) != 1 || *got[0].CapacityBytes != uint64(sectors*512) || *got[0].UsedBytes+*got[0].AvailableBytes+*got[0].Inodes != 0 {
			t.Errorf("%s: got %+v, want its capacity only", name, got)
		}
		return
	}
	t.Skip("no block device here that may be opened")
}

func TestOtherStatisticsWithoutThoseOfVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.used = map[string]int64{logs + "web": 30}
		d.run("web-1")
		m := d.stated(fine)
		m.cfg.StatsPeriod = -1
		p := aPod(empty("data", "", ""), claimed("mine", "claim"))
		p.Status = d.pod.Status
		got := m.Pods(t.Context(), []*v1.Pod{p})[0]
		if len(got.VolumeStats) > 0 || *got.EphemeralStorage.UsedBytes != 30 || len(m.Claims(t.Context(), []*v1.Pod{p})) > 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestWhoChoosesBetweenPodsWaitsForAFreshMeasurement, however fresh those for statistics may
// be, but not more often than every ten seconds, nor than the disk can bear.
func TestWhoChoosesBetweenPodsWaitsForAFreshMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.takes["huge"] = 3 * time.Second
		d.used = map[string]int64{"data": 1, "huge": 2}
		m, pods := d.stated(fine), []*v1.Pod{aPod(empty("data", "", ""), empty("huge", "", ""))}
		m.Pods(t.Context(), pods) // leaves the huge one under way
		if u := used(m.Measure(t.Context(), pods)[0]); u["data"] != 1 || u["huge"] != 2 {
			t.Errorf("got %v, want all of it", u)
		}
		time.Sleep(9 * time.Second)
		d.used["data"] = 100
		if u := used(m.Pods(t.Context(), pods)[0]); u["data"] != 1 {
			t.Errorf("for statistics: got %v, want what is fresh enough", u)
		}
		time.Sleep(2 * time.Second)
		if u := used(m.Measure(t.Context(), pods)[0]); u["data"] != 100 {
			t.Errorf("got %v, want a new measurement", u)
		}
		if n := len(d.walks["huge"]); n != 1 {
			t.Errorf("what took 3s was measured %d times within a quarter of a minute", n)
		}
	})
}

func TestWhatTheRuntimeKeepsIsMeasuredAsRarelyAsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDisk().limits(&bytes.Buffer{})
		var calls int
		takes, fails := 3*time.Second, error(nil)
		ask := func() (int64, bool) {
			used, at, known := m.Runtime(t.Context(), func(context.Context) (Amount, error) {
				calls++
				time.Sleep(takes)
				return Amount{Bytes: 1000 + int64(calls), Inodes: 7}, fails
			})
			if known && (used.Inodes != 7 || time.Since(at) > 6*time.Minute) {
				t.Errorf("got %+v of %s", used, at)
			}
			return used.Bytes, known
		}
		if got, known := ask(); known {
			t.Errorf("got %d before it was measured", got)
		}
		time.Sleep(3 * time.Second)
		for range 4 { // 3 s take fifty times as long to be due again
			if got, known := ask(); got != 1001 || !known {
				t.Errorf("got %d, %v, want 1001", got, known)
			}
			time.Sleep(30 * time.Second)
		}
		time.Sleep(time.Minute)
		takes, fails = 0, errors.New("containerd is away")
		if got, known := ask(); known || calls != 2 {
			t.Errorf("got %d after %d calls, want none: the runtime did not answer", got, calls)
		}
	})
}
