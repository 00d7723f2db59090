package main

import (
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// gcPercent is what the heap may grow by between two collections. Little of
// podd's memory is its heap, and a collection takes some milliseconds, ten or
// twenty times in a burst of 50 pods.
const gcPercent = 50

// limitHeap is overruled by the environment's GOGC.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// forbidCores keeps this process' memory, in which there are Secrets, out of core
// files, whatever its limits are. What it executes is not concerned: unlike a limit,
// the attribute ends with the next program, and containers keep their own.
func forbidCores(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot forbid core files: one of podd may contain Secrets", "error", err)
	}
}
