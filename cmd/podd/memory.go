package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// gcPercent is GOGC: how much the heap may grow between two garbage collections. Little of
// podd's memory is heap. A collection takes a few milliseconds, and a burst of 50 pods causes
// ten or twenty.
const gcPercent = 50

// limitHeap sets gcPercent. GOGC in the environment takes precedence.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

const (
	// startupTime is the time after which podd hardly uses the parts of the program and the
	// heap that only the start needed.
	startupTime = time.Minute
	// heapCheckPeriod is how often podd checks whether there is more unused memory.
	heapCheckPeriod = 30 * time.Second
	// minReturnBytes is how many bytes of free heap make a garbage collection worthwhile.
	minReturnBytes = 1 << 20
)

// returnMemory returns unused memory to the machine until ctx ends. It first returns what only
// the start needed. Later it returns what a burst of pods or a rare job left, once that has
// been unused for half a minute. The Go runtime on its own keeps free heap for the next burst,
// some 3 MiB on a node that has no bursts.
func returnMemory(ctx context.Context, log *slog.Logger) {
	var heap heapState
	for wait := startupTime; ; wait = heapCheckPeriod {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if wait != startupTime && !heap.idle() {
			continue
		}
		unmapUnused(log)
		heap.release()
	}
}

// heapState is the state of the heap at the last check.
type heapState struct {
	collections uint64
	// retained is how much was still free after the last release: the Go runtime does not
	// return everything.
	retained uint64
}

// idle reports whether free heap is worth returning and no garbage was collected since the last
// check. In that case it was already free then, and little has been allocated since.
func (h *heapState) idle() bool {
	before := h.collections
	collections, free := readHeap()
	h.collections = collections
	return free >= h.retained+minReturnBytes && collections == before
}

// release returns all free heap.
func (h *heapState) release() {
	debug.FreeOSMemory()
	h.collections, h.retained = readHeap()
}

// readHeap returns how often garbage was collected, and how many bytes of the heap are free but
// not returned.
func readHeap() (collections, free uint64) {
	now := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(now)
	for i, value := range []*uint64{&collections, &free} {
		if now[i].Value.Kind() == metrics.KindUint64 { // a later Go may lack the metric
			*value = now[i].Value.Uint64()
		}
	}
	return collections, free
}

// disableCoreDumps keeps this process's memory, which contains Secrets, out of core files,
// whatever its limits are. Programs that it executes are not affected: unlike a limit, the
// attribute ends with execve, and containers keep their own.
func disableCoreDumps(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot disable core files: one of podd would contain Secrets", "error", err)
	}
}
