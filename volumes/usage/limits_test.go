package usage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/podfs"
)

func empty(name, limit string, medium v1.StorageMedium) v1.Volume {
	source := &v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}}
}

func aPod(volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"}, Spec: v1.PodSpec{Volumes: volumes}}
	use(p)
	return p
}

// use has a container mount all of the pod's volumes.
func use(p *v1.Pod) {
	all := v1.Container{Name: "all"}
	for i := range p.Spec.Volumes {
		all.VolumeMounts = append(all.VolumeMounts, v1.VolumeMount{Name: p.Spec.Volumes[i].Name})
	}
	p.Spec.InitContainers = []v1.Container{all}
}

// disk is a fake of a node's volumes: the usage of each, how long measuring it takes, and
// when it was measured.
type disk struct {
	mu    sync.Mutex
	used  map[string]int64
	takes map[string]time.Duration
	fails error
	walks map[string][]time.Time
	pod   *v1.Pod          // as Status has it
	layer map[string]Layer // by container ID; asked counts
	asked map[string]int

	drivers map[string]func(context.Context) (pod.VolumeStats, error) // by volume
	calls   map[string]int                                            // of drivers
	events  []string
}

// Stats returns the stats of a volume's driver, if it has one.
func (d *disk) Stats(ctx context.Context, _ *v1.Pod, volume string) (pod.VolumeStats, error) {
	d.mu.Lock()
	ask := d.drivers[volume]
	d.calls[volume]++
	d.mu.Unlock()
	if ask == nil {
		return pod.VolumeStats{}, pod.ErrNoStats
	}
	return ask(ctx)
}

// called is how often the driver of a volume was asked.
func (d *disk) called(volume string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[volume]
}

// driverStats is NAME for a volume NAME/N that has a driver.
func (d *disk) driverOf(_ *v1.Pod, volume string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drivers[volume] == nil {
		return ""
	}
	name, _, _ := strings.Cut(volume, "/")
	return name
}

func (d *disk) Event(p *v1.Pod, eventType, reason, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, p.Name+" "+eventType+" "+reason+" "+message)
}

func (d *disk) status(pod.UID) *v1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pod
}

func (d *disk) Layer(_ context.Context, id string) (Layer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[id]++
	l, there := d.layer[id]
	if !there {
		return Layer{}, pod.ErrNotFound
	}
	return l, nil
}

// run sets the running containers; the ID of container NAME is NAME-N.
func (d *disk) run(ids ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &v1.Pod{}
	for _, id := range ids {
		name, _, _ := strings.Cut(id, "-")
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, ContainerID: "containerd://" + id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		})
		d.layer[id] = Layer{Dir: "/layer/" + id, FSPath: "/layer/" + id}
	}
	d.pod = p
}

func (d *disk) limits(log *bytes.Buffer) *Meter {
	l := New(Config{
		Path: func(_ *v1.Pod, volume string) (string, error) { return volume, nil }, Stats: d.Stats, Driver: d.driverOf, Dirs: podfs.Dirs{Root: "/none", PodLogs: "/logs"},
		Status: d.status, Layers: d, Events: d, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	l.size = func(ctx context.Context, dir string, _ int64) (Amount, error) {
		d.mu.Lock()
		d.walks[dir] = append(d.walks[dir], time.Now())
		takes := d.takes[dir]
		d.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return Amount{}, context.Cause(ctx)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return Amount{Bytes: d.used[dir]}, d.fails
	}
	return l
}

func (d *disk) fill(volume string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[volume] = bytes
}

func newDisk() *disk {
	return &disk{used: map[string]int64{}, takes: map[string]time.Duration{}, walks: map[string][]time.Time{}, layer: map[string]Layer{}, asked: map[string]int{},
		drivers: map[string]func(context.Context) (pod.VolumeStats, error){}, calls: map[string]int{}}
}

func TestAVolumeOverItsLimitIsFoundAtTheNextMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, began := newDisk(), time.Now()
		d.fill("data", 10<<20) // exactly the limit
		time.AfterFunc(25*time.Second, func() { d.fill("data", 10<<20+1) })
		e, exceeded := d.limits(&bytes.Buffer{}).Watch(t.Context(), aPod(empty("other", "1Gi", ""), empty("data", "10Mi", "")))
		if !exceeded || e.Message != `Usage of EmptyDir volume "data" exceeds the limit "10Mi". ` || e.Signal != "emptydirfs.limit" || *e.Grace != time.Second {
			t.Errorf("got %+v (%v)", e, exceeded)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("found after %v, want the measurement after 30s", took)
		}
	})
}

// It does not delay other measurements.
func TestASlowMeasurementIsRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.takes["huge"] = 10 * time.Minute
		l := d.limits(&bytes.Buffer{})
		ctx, stop := context.WithTimeout(t.Context(), time.Hour-5*time.Second)
		defer stop()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { l.Watch(ctx, aPod(empty("huge", "1Ti", ""))) })
		}
		all.Go(func() { l.Watch(ctx, aPod(empty("small", "1Mi", ""))) })
		all.Wait()
		if got := len(d.walks["huge"]); got != 3 {
			t.Errorf("three trees of ten minutes were walked %d times in an hour, want once each", got)
		}
		if got := len(d.walks["small"]); got != 359 {
			t.Errorf("the small volume was measured %d times, want every 10 s", got)
		}
	})
}

func TestAVolumeDoesNotWaitForASlowOneOfItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.takes["huge"] = 3 * time.Second
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		d.limits(&bytes.Buffer{}).Watch(ctx, aPod(empty("huge", "1Ti", ""), empty("small", "1Mi", "")))
		if got := len(d.walks["small"]); got < 50 {
			t.Errorf("the small volume was measured %d times in ten minutes, want every 10 s", got)
		}
		if got := len(d.walks["huge"]); got != 4 {
			t.Errorf("the huge one was walked %d times, want once in 150 s", got)
		}
	})
}

func TestNothingIsWatchedWithoutALimit(t *testing.T) {
	none := aPod(empty("a", "", ""), empty("b", "1Mi", v1.StorageMediumMemory), empty("c", "0", ""), empty("d", "1Gi", "HugePages"),
		v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}})
	d := newDisk()
	l := d.limits(&bytes.Buffer{})
	if l.Limited(none) {
		t.Error("Limited is true for a pod without a limit on disk")
	}
	if _, exceeded := l.Watch(t.Context(), none); exceeded || len(d.walks) != 0 {
		t.Errorf("got %v and measured %v", exceeded, d.walks)
	}
	if !l.Limited(aPod(empty("a", "1Mi", ""))) {
		t.Error("Limited is false for a pod with a limit")
	}
}

func TestTheWatchEndsWithItsContextAndLogsAnErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := newDisk(), &bytes.Buffer{}
		d.fails = errors.New("the disk is gone")
		ctx, stop := context.WithTimeout(t.Context(), 55*time.Second)
		defer stop()
		if _, exceeded := d.limits(log).Watch(ctx, aPod(empty("data", "1Mi", ""))); exceeded {
			t.Error("the limit is exceeded although measuring failed")
		}
		if got := strings.Count(log.String(), "the disk is gone"); got != 1 || len(d.walks["data"]) != 5 {
			t.Errorf("%d measurements, logged %d times: %s", len(d.walks["data"]), got, log)
		}
	})
}

var _ interface {
	Limited(*v1.Pod) bool
	Watch(context.Context, *v1.Pod) (pod.Eviction, bool)
} = (*Meter)(nil)
