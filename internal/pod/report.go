package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Waiting is why a container that should run does not run yet.
type Waiting struct {
	// Reason is the kubelet's: ContainerCreating, CrashLoopBackOff ….
	Reason  string
	Message string
}

// ProbeResult is the state of one kind of probe of one container.
type ProbeResult int

const (
	// ProbeUnknown: no result yet, or no such probe.
	ProbeUnknown ProbeResult = iota
	ProbeSucceeded
	ProbeFailed
)

// Probes is what the prober last said of one container; the zero value is a
// container without probes. ProbeFailed is said after failureThreshold failures
// in a row, ProbeSucceeded after successThreshold successes, ProbeUnknown before
// either.
type Probes struct {
	// ContainerID is whose results these are. Those of a container that is no
	// longer the newest of its name tell nothing.
	ContainerID          string
	Startup, Ready, Live ProbeResult
}

// ProbeResults is by container name; nil when the pod has no probes.
type ProbeResults map[string]Probes

// Of returns the results of exactly that container; zero if there are none.
func (r ProbeResults) Of(name, containerID string) Probes {
	if p := r[name]; p.ContainerID == containerID {
		return p
	}
	return Probes{}
}

// Report is what a worker tells of its pod after each sync. status.Compute
// makes the API's PodStatus of it.
type Report struct {
	Desired  *Desired
	Phase    Phase
	Observed Observed
	Probes   ProbeResults
	// Unseen says that the runtime has not been asked about the pod yet: nothing is
	// known but that it is wanted, perhaps it has run for days.
	Unseen bool
	// Waiting, by container name, for containers that do not run but will.
	Waiting map[string]Waiting
	// Starting are containers, by ID, whose postStart hook is under way: the
	// kubelet shows them as not yet running until it has completed.
	Starting map[string]bool
	// Followed are containers, by ID, that were stopped to be started anew: a
	// successor comes whatever their exit code is.
	Followed map[string]bool
	// Conditions are added to the pod's (DisruptionTarget, PodResizePending,
	// PodResizeInProgress, AllContainersRestarting); the worker decides when.
	Conditions []v1.PodCondition
	// Allocated are the resources that the node granted, by container name, for
	// a pod that was resized; nil for what the spec says.
	Allocated map[string]v1.ResourceRequirements
	// Reason and Message are the pod's own (Evicted, DeadlineExceeded, a
	// rejection on admission …). Failed says that the pod ended for that
	// reason, whatever its containers say.
	Failed  bool
	Reason  string
	Message string
	// StartTime is when this node took the pod up; it survives restarts.
	StartTime time.Time
	At        time.Time
}
