package eviction

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/cgroup"
	"podd/eviction/threshold"
	"podd/podfs"
	"podd/stats/kernel"
	"podd/volumes/usage"
)

// ofThisMachine measures this machine, with a temporary directory as podd's root and a
// cgroup root where no other podd of the machine has its pods.
func ofThisMachine(t testing.TB, log *slog.Logger) *Meter {
	t.Helper()
	dir := t.TempDir()
	found, err := cgroup.Detect()
	if err != nil {
		t.Skip("no cgroups: ", err)
	}
	dirs := podfs.Dirs{Root: dir}.WithDefaults()
	if err := os.MkdirAll(dirs.Pods(), 0o755); err != nil {
		t.Fatal(err)
	}
	return NewMeter(MeterConfig{
		Kernel: kernel.New(kernel.Config{V2: found.Version == cgroup.V2, Controllers: found.Controllers}), PodsCgroup: "/podd-test-" + filepath.Base(filepath.Dir(dir)),
		FS: usage.New(usage.Config{Dirs: dirs}).FS, SameFS: usage.SameFS, PodsDir: dirs.Pods(), ImagesDir: func(context.Context) string { return dir }, Log: log,
	})
}

// TestTheNodeIsMeasured: every signal has something, and not more than there is; one for
// which nobody asked has nothing.
func TestTheNodeIsMeasured(t *testing.T) {
	var log bytes.Buffer
	o := ofThisMachine(t, slog.New(slog.NewTextHandler(&log, nil)))
	seen := o.Observe(t.Context(), threshold.Signals)
	for _, s := range threshold.Signals {
		got, known := seen[s]
		switch {
		case s == threshold.AllocatableMemoryAvailable || s.Ignored(): // there is no pod, and no such cgroup
			if known {
				t.Errorf("%s: got %+v", s, got)
			}
		case s == threshold.NodeFSInodesFree || s == threshold.ImageFSInodesFree:
			if known && (got.Capacity <= 0 || got.Available > got.Capacity) { // not every file system has them
				t.Errorf("%s: got %+v", s, got)
			}
		case !known || got.Available <= 0 || got.Available >= got.Capacity || time.Since(got.Time) > time.Minute:
			t.Errorf("%s: got %+v", s, got)
		}
	}
	if got := o.Observe(t.Context(), []threshold.Signal{threshold.PIDAvailable}); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	o.imagesDir = "/nowhere"
	if o.HasDedicatedImageFS(t.Context()) != true {
		t.Error("images that are elsewhere are on the pods' disk")
	}
	if err := os.RemoveAll(o.cfg.PodsDir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := o.Observe(t.Context(), []threshold.Signal{threshold.NodeFSAvailable}); len(got) != 0 {
			t.Errorf("of a disk that cannot be measured: got %v", got)
		}
	}
	if n := strings.Count(log.String(), "cannot measure"); n != 1 {
		t.Errorf("that was logged %d times: %s", n, &log)
	}
}

func TestWhatIsLeftIsCountedAsTheKubeletDoes(t *testing.T) {
	at := time.Now()
	if got := memoryLeft(kernel.Memory{Limit: 1000, Usage: 900, WorkingSet: 300}, at); got != (Observation{Available: 700, Capacity: 1000, Time: at}) {
		t.Errorf("got %+v", got)
	}
	if got := memoryLeft(kernel.Memory{Limit: 1000, WorkingSet: 300, HugePages: 400}, at); got.Available != 300 {
		t.Errorf("beside huge pages: got %+v", got)
	}
	if got := memoryLeft(kernel.Memory{Limit: 1000, WorkingSet: 700, HugePages: 400}, at); got.Available != 0 {
		t.Errorf("beside huge pages that leave nothing: got %+v", got)
	}
	if got := memoryLeft(kernel.Memory{Limit: 1000, WorkingSet: 1200}, at); got.Available != 0 {
		t.Errorf("got %+v", got)
	}
	free, all, none := uint64(7), uint64(70), uint64(0)
	out := Observations{}
	observeFS(out, []threshold.Signal{threshold.NodeFSAvailable, threshold.NodeFSInodesFree}, &stats.FsStats{AvailableBytes: &free, CapacityBytes: &all, InodesFree: &none, Inodes: &none}, at)
	if len(out) != 1 || out[threshold.NodeFSAvailable] != (Observation{Available: 7, Capacity: 70, Time: at}) {
		t.Errorf("without inodes: got %+v", out)
	}
}

// TestALookAtTheNodeCostsFewReads: it is repeated every ten seconds as long as podd runs.
func TestALookAtTheNodeCostsFewReads(t *testing.T) {
	o := ofThisMachine(t, slog.New(slog.DiscardHandler))
	reads := func() int {
		text, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Skip("the kernel does not count reads: ", err)
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "syscr: "); ok {
				count, _ := strconv.Atoi(strings.TrimSpace(n))
				return count
			}
		}
		t.Skip("the kernel does not count reads")
		return 0
	}
	ctx := context.WithoutCancel(t.Context())
	o.Observe(ctx, threshold.Signals)
	const looks = 100
	before := reads()
	for range looks {
		o.Observe(ctx, threshold.Signals)
	}
	if n := float64(reads()-before) / looks; n > 20 {
		t.Errorf("%.1f reads for a look, want 20 at most", n)
	} else {
		t.Logf("%.1f reads for a look", n)
	}
}

func BenchmarkALookAtTheNode(b *testing.B) {
	o := ofThisMachine(b, slog.New(slog.DiscardHandler))
	for b.Loop() {
		o.Observe(b.Context(), threshold.Signals)
	}
}
