package cri

import (
	"runtime"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/slots"
)

// callPatience is how long a call counts as one that makes the runtime work. One that
// takes longer waits for something (a network plugin, a mount, a server), and must not
// delay those of other pods.
const callPatience = 10 * time.Second

// kind is what calls have in common that share a bound.
type kind int

const (
	looking  kind = iota // reads from the runtime's memory
	starting             // sandboxes and containers come
	stopping             // containers are stopped
	leaving              // sandboxes are stopped
	removing             // what is stopped is removed
	executing
	unbounded // health checks, which must not wait; pulls, which images bounds
)

// signalTime is how long a stop makes the runtime work until its container has the signal.
// After that the stop only waits, until the grace period ends and the runtime kills the
// container: it rests.
const signalTime = time.Second

// endsAtOnce is how many calls of each kind that ends a pod are at work. On two processors
// eight keep both busy; more only make each of them take longer.
var endsAtOnce = max(8, 4*runtime.NumCPU())

// width bounds the calls of a kind in flight.
type width struct {
	atWork int
	// beside are those that may go on besides: they hang, or rest.
	beside int
}

// widths are those of all bounded kinds. A runtime that gets thousands at once serves none
// of them in time: each StopContainer of 1,000 took longer than its deadline. And a gRPC
// connection may block for good when more frames are queued on it than its two ends count
// (grpc-go 1.82 to 1.84).
//
// A stop that rests is only an open stream, and a node has fewer than half as many pods as
// may rest. A kill at the end of a grace period makes the runtime work as much as the signal
// did: other stops wait for it, and their grace periods begin when they have been signalled.
// The steps of a pod's end are kinds of their own: the last step of one
// pod does not wait behind the first of hundreds, and the first of a storm are gone first.
var widths = map[kind]width{
	looking:   {16, 32},
	starting:  {16, 48},
	stopping:  {endsAtOnce, 4096},
	leaving:   {endsAtOnce, 48},
	removing:  {endsAtOnce, 48},
	executing: {32, 64},
}

var kinds = map[string]kind{
	"ListPodSandbox": looking, "ListContainers": looking, "PodSandboxStatus": looking, "ContainerStatus": looking,
	"ContainerStats": looking, "ImageStatus": looking, "ListImages": looking,
	"RunPodSandbox": starting, "CreateContainer": starting, "StartContainer": starting,
	"UpdateContainerResources": starting, "ReopenContainerLog": starting,
	"StopContainer": stopping, "StopPodSandbox": leaving,
	"RemovePodSandbox": removing, "RemoveContainer": removing, "RemoveImage": removing,
	"ExecSync": executing, "Exec": executing, "Attach": executing, "PortForward": executing, "CheckpointContainer": executing,
}

// kindOf is the kind of a CRI method.
func kindOf(method string) kind {
	if k, ok := kinds[method]; ok {
		return k
	}
	return unbounded
}

// restOf is when a call makes the runtime work at nothing.
func restOf(req any) slots.Rest {
	if stop, ok := req.(*runtimeapi.StopContainerRequest); ok {
		return slots.Rest{From: signalTime, To: time.Duration(stop.GetTimeout()) * time.Second}
	}
	return slots.Rest{}
}

// newSlots returns the slots of each kind of call.
func newSlots() map[kind]*slots.Slots {
	all := make(map[kind]*slots.Slots, len(widths))
	for k, w := range widths {
		all[k] = slots.New(w.atWork, w.beside, callPatience)
	}
	return all
}
