// Containerd-shim-runc-v2 is containerd's own shim with two differences.
//
// It runs one thread of Go code at a time. Each shim collects its garbage every 30 s,
// whatever it did meanwhile (pkg/shim, setRuntime), and with the four threads that
// containerd's gives itself most of that time is spent on waking and waiting for one
// another: on a node at rest that was three quarters of all the processor time. What a
// shim waits for (runc, the kernel) does not count as Go code.
//
// And it does not leave the file systems of its containers in the node's mount table: see
// task.
package main

import (
	"context"
	"runtime"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
)

func main() {
	runtime.GOMAXPROCS(1)
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}
