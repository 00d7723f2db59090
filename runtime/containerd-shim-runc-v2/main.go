// Containerd-shim-runc-v2 is containerd's own shim with two differences.
//
// It runs one thread of Go code at a time. Each shim collects its garbage every 30 s, even if
// it did nothing meanwhile (pkg/shim, setRuntime). With the four threads of containerd's own
// shim, most of that time goes to waking and waiting for one another. On a node at rest that
// was three quarters of all the processor time. Waiting for runc or the kernel does not count
// as running Go code.
//
// It also removes the file systems of its containers from the node's mount table: see task.
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
