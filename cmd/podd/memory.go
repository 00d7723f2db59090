package main

import (
	"log/slog"
	"os"
	"runtime/debug"

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

// forbidCores keeps this process's memory, which contains Secrets, out of core
// files, whatever its limits are. Programs that it executes are not affected: unlike
// a limit, the attribute ends with execve, and containers keep theirs.
func forbidCores(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot disable core files: one of podd would contain Secrets", "error", err)
	}
}
