// Package hooks runs the lifecycle handlers of containers, postStart and
// preStop: exec, httpGet and sleep, once each.
//
// It owns how a handler is run and what its failure is called. It leaves to the
// agent when to run it, for how long (the context) and what follows.
//
// A handler ends with its context at the latest. It holds one goroutine, the
// caller's, and at most 10 KiB of what the other side says. The package follows
// upstream's pkg/kubelet/lifecycle: tcpSocket passes validation there and fails
// here, as it does there.
package hooks
