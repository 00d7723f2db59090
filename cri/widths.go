package cri

import (
	"time"

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
	removing             // sandboxes are stopped, and everything is removed
	executing
	unbounded // health checks, which must not wait; pulls, which images bounds
)

// stopPatience is callPatience of stops. What makes the runtime work is the signal; a
// container that uses its grace period up is only waited for, and so are all that were
// signalled with it.
const stopPatience = time.Second

// width bounds the calls of a kind in flight.
type width struct {
	atWork int
	// hanging are those that may go on besides after the patience.
	hanging  int
	patience time.Duration
}

// widths are those of all bounded kinds. A runtime that gets thousands at once serves none
// of them in time: each StopContainer of 1,000 took longer than its deadline. And a gRPC connection may block for good when more
// frames are queued on it than its two ends count (grpc-go 1.82 to 1.84).
//
// A stop that waits for a grace period to end is only an open stream. The bound of those is
// twice as many as a node has pods, so that no pod's grace period waits for another's.
var widths = map[kind]width{
	looking:   {16, 32, callPatience},
	starting:  {16, 48, callPatience},
	stopping:  {8, 4096, stopPatience},
	removing:  {8, 48, callPatience},
	executing: {32, 64, callPatience},
}

var kinds = map[string]kind{
	"ListPodSandbox": looking, "ListContainers": looking, "PodSandboxStatus": looking, "ContainerStatus": looking,
	"ContainerStats": looking, "ImageStatus": looking, "ListImages": looking,
	"RunPodSandbox": starting, "CreateContainer": starting, "StartContainer": starting,
	"UpdateContainerResources": starting, "ReopenContainerLog": starting,
	"StopContainer":  stopping,
	"StopPodSandbox": removing, "RemovePodSandbox": removing, "RemoveContainer": removing, "RemoveImage": removing,
	"ExecSync": executing, "Exec": executing, "Attach": executing, "PortForward": executing, "CheckpointContainer": executing,
}

// kindOf is the kind of a CRI method.
func kindOf(method string) kind {
	if k, ok := kinds[method]; ok {
		return k
	}
	return unbounded
}

// newSlots returns the slots of each kind of call.
func newSlots() map[kind]*slots.Slots {
	all := make(map[kind]*slots.Slots, len(widths))
	for k, w := range widths {
		all[k] = slots.New(w.atWork, w.hanging, w.patience)
	}
	return all
}
