package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestHeapThatABurstLeftIsReturnedToTheMachine, but not while garbage is still collected.
func TestHeapThatABurstLeftIsReturnedToTheMachine(t *testing.T) {
	var heap heapState
	burst := make([][]byte, 512)
	for i := range burst {
		burst[i] = make([]byte, 64<<10)
	}
	// Go's own scavenger returns in the background what is beyond the heap's goal. This one
	// is far away, so that what is free stays until it is returned here.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(100_000))
	runtime.KeepAlive(burst)
	clear(burst)
	runtime.GC()
	_, before := readHeap()
	if before < 8<<20 {
		t.Fatalf("%d bytes are free and not returned: there is nothing to see", before)
	}
	if heap.idle() {
		t.Error("it is idle although garbage has just been collected")
	}
	if !heap.idle() {
		t.Error("it is not idle although nothing was collected since")
	}
	heap.release()
	if _, after := readHeap(); after > before/4 {
		t.Errorf("%d bytes are free and not returned, %d before", after, before)
	}
	if heap.idle() {
		t.Error("it is idle although there is nothing to return")
	}
}
