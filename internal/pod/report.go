package pod

import "time"

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
// container without probes.
type Probes struct{ Startup, Ready, Live ProbeResult }

// ProbeResults is by container name; nil when the pod has no probes.
type ProbeResults map[string]Probes

// Report is what a worker tells of its pod after each look. status.Compute
// makes the API's PodStatus of it.
type Report struct {
	Desired  *Desired
	Phase    Phase
	Observed Observed
	Probes   ProbeResults
	// Waiting, by container name, for containers that do not run but will.
	Waiting map[string]Waiting
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
