package main

import (
	"runtime"
	"testing"
)

// TestFreeHeapIsReturnedToTheMachine: after a burst the Go runtime keeps much of what it had.
func TestFreeHeapIsReturnedToTheMachine(t *testing.T) {
	burst := make([][]byte, 512)
	for i := range burst {
		burst[i] = make([]byte, 64<<10)
	}
	kept := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapIdle - m.HeapReleased
	}
	runtime.KeepAlive(burst)
	clear(burst)
	runtime.GC()
	before := kept()
	if before < 8<<20 {
		t.Fatalf("%d bytes are free and not returned: there is nothing to see", before)
	}
	returnHeap()
	if after := kept(); after > before/4 {
		t.Errorf("%d bytes are free and not returned, %d before", after, before)
	}
}
