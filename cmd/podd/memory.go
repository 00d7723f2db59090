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
	// returnPeriod is how often podd looks for more that it does not use: as often as the Go
	// runtime collects garbage where little is allocated.
	returnPeriod = 2 * time.Minute
	// returnFrom is from how many bytes of free heap on a garbage collection is worth it.
	returnFrom = 1 << 20
)

// returnMemory returns what podd does not use to the machine, until ctx ends: what only its
// start needed, and later what a burst of pods or a rare job left. The Go runtime on its own
// keeps free heap for the next burst, some 3 MiB on a node where there is none.
func returnMemory(ctx context.Context, log *slog.Logger) {
	for wait := startIsOver; ; wait = returnPeriod {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		unmapUnused(log)
		returnHeap()
	}
}

// returnHeap returns free heap, unless there is little.
func returnHeap() {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(free)
	if v := free[0].Value; v.Kind() != metrics.KindUint64 || v.Uint64() >= returnFrom {
		debug.FreeOSMemory()
	}
}

// forbidCores keeps this process's memory, which contains Secrets, out of core
// files, whatever its limits are. Programs that it executes are not affected: unlike
// a limit, the attribute ends with execve, and containers keep theirs.
func forbidCores(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot disable core files: one of podd would contain Secrets", "error", err)
	}
}
