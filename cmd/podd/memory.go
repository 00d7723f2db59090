package main

import (
	"os"
	"runtime/debug"
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
