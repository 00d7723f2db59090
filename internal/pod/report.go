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

// Probes are the latest results of a container's probes; the zero value is a
// container without probes. ProbeFailed is after failureThreshold failures in a row,
// ProbeSucceeded after successThreshold successes, ProbeUnknown before either.
type Probes struct {
	// ContainerID is the container of these results. Those of a container that is no
	// longer the newest of its name are stale.
	ContainerID          string
	Startup, Ready, Live ProbeResult
}

// ProbeResults is by container name; nil if the pod has no probes.
type ProbeResults map[string]Probes

// Of returns the results of exactly that container; zero if there are none.
func (r ProbeResults) Of(name, containerID string) Probes {
	if p := r[name]; p.ContainerID == containerID {
		return p
	}
	return Probes{}
}

// Report is a worker's report about its pod after each sync. status.Compute makes the
// API's PodStatus of it.
type Report struct {
	Desired  *Desired
	Phase    Phase
	Observed Observed
	Probes   ProbeResults
	// Unseen says that the runtime was not queried for the pod yet: it is only known
	// to be desired, and may have been running for days.
	Unseen bool
	// Waiting, by container name, for containers that do not run but will.
	Waiting map[string]Waiting
	// Starting are containers, by ID, whose postStart hook is running: like the
	// kubelet, podd shows them as not running until it has completed.
	Starting map[string]bool
	// Followed are containers, by ID, that were stopped in order to be restarted, or
	// whose start was interrupted: they have a successor whatever their exit code is.
	Followed map[string]bool
	// Conditions are added to the pod's (DisruptionTarget, PodResizePending,
	// PodResizeInProgress, AllContainersRestarting); the worker decides when.
	Conditions []v1.PodCondition
	// AllocatedPod are those of the pod as a whole where Allocated is set; nil if it names
	// none.
	AllocatedPod *v1.ResourceRequirements
	// Allocated are the allocated resources, by container name, of a pod that was
	// resized; nil for those of the spec.
	Allocated map[string]v1.ResourceRequirements
	// Devices are the devices of device plugins that containers have, by container name, with
	// their health; nil for none.
	Devices map[string][]v1.ResourceStatus
	// Failed, Reason and Message are the pod's own (Evicted, DeadlineExceeded, a
	// rejection …): with Failed, its phase is Failed with this reason, whatever its
	// containers report.
	Failed  bool
	Reason  string
	Message string
	// StartTime is when this node took the pod up; it survives restarts.
	StartTime time.Time
	At        time.Time
}
