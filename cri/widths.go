package cri

import (
	"runtime"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/slots"
)

// callPatience is how long a call is considered to make the runtime work. A longer call
// waits for something (a network plugin, a mount, a server), and must not delay the calls
// of other pods.
const callPatience = 10 * time.Second

// kind groups the calls that share a bound.
type kind int

const (
	looking  kind = iota // reads from the runtime's memory
	starting             // sandboxes and containers come
	stopping             // containers are stopped
	leaving              // sandboxes are stopped
	removing             // stopped ones are removed
	executing
	unbounded // health checks, which must not wait; pulls, which images bounds
)

// signalTime is how long a stop makes the runtime work until its container has the signal.
// After that the stop rests: it only waits, until the grace period ends and the runtime
// kills the container.
const signalTime = time.Second

// endsAtOnce is the number of calls at work for each kind that ends a pod. On two
// processors eight keep both busy; more only make each of them take longer.
var endsAtOnce = max(8, 4*runtime.NumCPU())

// width bounds the calls of a kind in flight.
type width struct {
	atWork int
	// beside is how many more may be in flight while they hang or rest.
	beside int
}

// widths bounds every kind but unbounded. A runtime that gets thousands of calls at once
// serves none of them in time: each StopContainer of 1,000 took longer than its deadline.
// And a gRPC connection may block for good when more frames are queued on it than its two
// ends count (grpc-go 1.82 to 1.84).
//
// A stop that rests is only an open stream, and a node has fewer than half as many pods as
// may rest. A kill at the end of a grace period makes the runtime work as much as the
// signal did: other stops wait for it, and their grace periods begin when they have been
// signalled. The steps of a pod's end are kinds of their own: the last step of one pod does
// not wait behind the first of hundreds, and the first of a storm are gone first.
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

// kindOf returns the kind of a CRI method.
func kindOf(method string) kind {
	if k, ok := kinds[method]; ok {
		return k
	}
	return unbounded
}

// restOf returns the part of a call during which the runtime only waits.
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
