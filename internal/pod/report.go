package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Waiting says why a container that should run does not run yet.
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

// Probes are the latest results of a container's probes; the zero value is a container
// without probes. A result becomes ProbeFailed after failureThreshold failures in a row and
// ProbeSucceeded after successThreshold successes; before either it is ProbeUnknown.
type Probes struct {
	// ContainerID is the container of these results. They are stale if that container is no
	// longer the newest of its name.
	ContainerID          string
	Startup, Ready, Live ProbeResult
}

// ProbeResults maps container names to results; nil if the pod has no probes.
type ProbeResults map[string]Probes

// ForContainer returns the results of exactly that container; zero if there are none.
func (r ProbeResults) ForContainer(name, containerID string) Probes {
	if p := r[name]; p.ContainerID == containerID {
		return p
	}
	return Probes{}
}

// Report is a worker's report about its pod after each sync. status.Compute makes the API's
// PodStatus from it.
type Report struct {
	Desired  *Desired
	Phase    Phase
	Observed Observed
	Probes   ProbeResults
	// NotObserved says that the runtime was not queried for the pod yet: podd only knows that it
	// is desired, and it may have been running for days.
	NotObserved bool
	// Waiting has, by name, the containers that do not run but will.
	Waiting map[string]Waiting
	// PostStartRunning are containers, by ID, with a running postStart hook: like the kubelet, podd
	// shows them as not running until the hook has completed.
	PostStartRunning map[string]bool
	// WillRestart are containers, by ID, that were stopped in order to be restarted, or that
	// had an interrupted start: they have a successor whatever their exit code is.
	WillRestart map[string]bool
	// Conditions are added to the pod's (DisruptionTarget, PodResizePending,
	// PodResizeInProgress, AllContainersRestarting); the worker decides when.
	Conditions []v1.PodCondition
	// AllocatedPod are the allocated resources of the pod as a whole, if Allocated is set;
	// nil if the pod names none.
	AllocatedPod *v1.ResourceRequirements
	// ActuatedPod are the CPU and the memory limit that the pod as a whole still has while a
	// resize is in progress; nil means what is allocated.
	ActuatedPod *v1.ResourceRequirements
	// Allocated are the allocated resources, by container name, of a pod that was resized;
	// nil means the spec's.
	Allocated map[string]v1.ResourceRequirements
	// Devices are the devices of device plugins that containers have, by container name, with
	// their health; nil for none.
	Devices map[string][]v1.ResourceStatus
	// Failed, Reason and Message are the pod's own (Evicted, DeadlineExceeded, a rejection
	// …): with Failed, the pod's phase is Failed with this reason, whatever its containers
	// report.
	Failed  bool
	Reason  string
	Message string
	// StartTime is when this node took on the pod; it survives restarts.
	StartTime time.Time
	At        time.Time
}
