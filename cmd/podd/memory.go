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

// gcPercent is GOGC: how much the heap may grow between two garbage collections.
// Little of podd's memory is heap, and a collection takes a few milliseconds, ten or
// twenty times in a burst of 50 pods.
const gcPercent = 50

// limitHeap sets it; GOGC in the environment takes precedence.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

const (
	// startIsOver is when little of the program and of the heap that only the start needed
	// is used any more.
	startIsOver = time.Minute
	// lookPeriod is how often podd looks whether there is more that it does not use.
	lookPeriod = 30 * time.Second
	// returnFrom is from how many bytes of free heap on a garbage collection is worth it.
	returnFrom = 1 << 20
)

// returnMemory returns what podd does not use to the machine, until ctx ends: what only its
// start needed, and later what a burst of pods or a rare job left, when it has not been needed
// for half a minute. The Go runtime on its own keeps free heap for the next burst, some 3 MiB
// on a node where there is none.
func returnMemory(ctx context.Context, log *slog.Logger) {
	var heap heapLook
	for wait := startIsOver; ; wait = lookPeriod {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if wait != startIsOver && !heap.idle() {
			continue
		}
		unmapUnused(log)
		heap.giveBack()
	}
}

// heapLook is what the heap was like when podd last looked.
type heapLook struct {
	collections uint64
	// kept is what was free after the last return: the Go runtime does not return everything.
	kept uint64
}

// idle says that free heap is worth returning, and that no garbage was collected since the last
// look: it was free then, too, and little has been allocated.
func (h *heapLook) idle() bool {
	before := h.collections
	collections, free := heapNow()
	h.collections = collections
	return free >= h.kept+returnFrom && collections == before
}

// giveBack returns all free heap.
func (h *heapLook) giveBack() {
	debug.FreeOSMemory()
	h.collections, h.kept = heapNow()
}

// heapNow is how often garbage was collected, and how many bytes of the heap are free and not
// returned.
func heapNow() (collections, free uint64) {
	now := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(now)
	for i, value := range []*uint64{&collections, &free} {
		if now[i].Value.Kind() == metrics.KindUint64 { // a later Go may have no such figure
			*value = now[i].Value.Uint64()
		}
	}
	return collections, free
}

// forbidCores keeps this process's memory, which contains Secrets, out of core
// files, whatever its limits are. Programs that it executes are not affected: unlike
// a limit, the attribute ends with execve, and containers keep theirs.
func forbidCores(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot disable core files: one of podd would contain Secrets", "error", err)
	}
}
