//go:build !race

// Under the race detector it is the detector that is measured: 6 times the memory
// and 13 times the time, most of it the kernel's, for pages touched for the first
// time, and that does not grow as podd's own work does.

package hostile_test

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/pod"
	"podd/podconfig/manifest"
	"podd/podconfig/manifest/hostile"
)

// TestNoTextCostsTheSquareOfItsSize decodes every hostile text in two sizes, one
// some sixteen times the other: a step that costs the square of the input would take
// 256 times as long. Four times the growth is what caches and a busy machine make of a
// cost that grows as the text does (they were seen to double it). What a bound cuts
// short costs less.
func TestNoTextCostsTheSquareOfItsSize(t *testing.T) {
	const (
		small = 16 << 10
		// What takes less is not told from noise.
		least = 10 * time.Millisecond
		tries = 4
	)
	// Whom a collection bills depends on what came before.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, in := range hostile.Inputs() {
		a, b := in.Text(small), in.Text(16*small)
		most := 4 * float64(len(b)) / float64(len(a)) // a text has whole pods only
		fast, slow := min(cost(a), cost(a)), time.Duration(1<<62)
		for range tries { // the least of some, by turns
			fast, slow = min(fast, cost(a)), min(slow, cost(b))
			if slow < least || float64(slow) <= most*float64(fast) {
				break
			}
		}
		if slow >= least && float64(slow) > most*float64(fast) {
			t.Errorf("%s: %v for %d KiB, %v for %d KiB", in.Name, fast, len(a)>>10, slow, len(b)>>10)
		}
	}
}

// cost is the processor time that this thread takes to decode a text.
func cost(text []byte) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC() // so that what it takes is memory used before, not pages of the kernel's
	now := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			panic(err)
		}
		return time.Duration(t.Nano())
	}
	began := now()
	manifest.Decode(text, manifest.Options{NodeName: "node1", Source: pod.SourceFile, Origin: "x", Now: time.Unix(0, 0)})
	return now() - began
}
