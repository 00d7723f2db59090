package cri

import (
	"runtime"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/slots"
)

// slowCallThreshold is how long a call is considered to make the runtime work. A longer call
// waits for something (a network plugin, a mount, a server), and must not delay the calls
// of other pods.
const slowCallThreshold = 10 * time.Second

// callKind groups the calls that share a callLimit.
type callKind int

const (
	readCall          callKind = iota // reads from the runtime's memory
	createCall                        // sandboxes and containers come
	stopContainerCall                 // containers are stopped
	stopSandboxCall                   // sandboxes are stopped
	removeCall                        // stopped ones are removed
	execCall
	unboundedCall // health checks, which must not wait; pulls, which images bounds
)

// signalTime is how long a stop makes the runtime work until its container has the signal.
// After that the stop rests: it only waits, until the grace period ends and the runtime
// kills the container.
const signalTime = time.Second

// maxActiveStops is how many calls of each kind that ends a pod may be active. On two
// processors eight keep both busy; more only make each of them take longer.
var maxActiveStops = max(8, 4*runtime.NumCPU())

// callLimit bounds the calls of a kind in flight.
type callLimit struct {
	active int
	// waiting is how many more may be in flight while they hang or only wait.
	waiting int
}

// callLimits bounds every kind but unboundedCall. A runtime that gets thousands of calls at once
// serves none of them in time: each StopContainer of 1,000 took longer than its deadline.
// And a gRPC connection may block for good when more frames are queued on it than its two
// ends count (grpc-go 1.82 to 1.84).
//
// A stop that rests is only an open stream, and a node has fewer than half as many pods as
// may rest. A kill at the end of a grace period makes the runtime work as much as the
// signal did: other stops wait for it, and their grace periods begin when they have been
// signalled. The steps of a pod's end are kinds of their own: the last step of one pod does
// not wait behind the first of hundreds, and the first of a storm are gone first.
var callLimits = map[callKind]callLimit{
	readCall:          {16, 32},
	createCall:        {16, 48},
	stopContainerCall: {maxActiveStops, 4096},
	stopSandboxCall:   {maxActiveStops, 48},
	removeCall:        {maxActiveStops, 48},
	execCall:          {32, 64},
}

var kinds = map[string]callKind{
	"ListPodSandbox": readCall, "ListContainers": readCall, "PodSandboxStatus": readCall, "ContainerStatus": readCall,
	"ContainerStats": readCall, "ImageStatus": readCall, "ListImages": readCall,
	"RunPodSandbox": createCall, "CreateContainer": createCall, "StartContainer": createCall,
	"UpdateContainerResources": createCall, "UpdatePodSandboxResources": createCall, "ReopenContainerLog": createCall,
	"StopContainer": stopContainerCall, "StopPodSandbox": stopSandboxCall,
	"RemovePodSandbox": removeCall, "RemoveContainer": removeCall, "RemoveImage": removeCall,
	"ExecSync": execCall, "Exec": execCall, "Attach": execCall, "PortForward": execCall, "CheckpointContainer": execCall,
}

// kindOf returns the kind of a CRI method.
func kindOf(method string) callKind {
	if k, ok := kinds[method]; ok {
		return k
	}
	return unboundedCall
}

// restOf returns the part of a call during which the runtime only waits.
func restOf(req any) slots.Rest {
	if stop, ok := req.(*runtimeapi.StopContainerRequest); ok {
		return slots.Rest{From: signalTime, To: time.Duration(stop.GetTimeout()) * time.Second}
	}
	return slots.Rest{}
}

// newSlots returns the slots of each kind of call.
func newSlots() map[callKind]*slots.Slots {
	all := make(map[callKind]*slots.Slots, len(callLimits))
	for k, l := range callLimits {
		all[k] = slots.New(l.active, l.waiting, slowCallThreshold)
	}
	return all
}
