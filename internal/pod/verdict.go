package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Reasons for which the node ends a pod or never starts it, as they stand in
// PodStatus.Reason; the kubelet's words, but for SandboxLost: the kubelet leaves
// such a pod Pending for ever.
const (
	ReasonEvicted          = "Evicted"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonPreempting       = "Preempting"
	ReasonSandboxLost      = "SandboxLost"
	ReasonAttachLimit      = "VolumeAttachmentLimitExceeded"
)

// End is the node's decision that a pod which its source still wants must stop
// for good: it becomes Failed with this reason. The zero value is no such
// decision.
type End struct {
	Reason, Message string
	// Grace replaces the pod's own grace period; nil for the pod's own.
	Grace *time.Duration
	// Condition is added to the status (DisruptionTarget …); nil for none.
	Condition *v1.PodCondition
}

// Eviction is why, and how, the node gives up a pod that takes too much of it.
type Eviction struct {
	// Signal is what it is counted under: the kubelet's name for what ran short, or
	// for the limit that was exceeded (emptydirfs.limit …).
	Signal string
	// Message is the status' and the event's, in the kubelet's words.
	Message string
	// Grace and Condition are the End's.
	Grace     *time.Duration
	Condition *v1.PodCondition
}

// EndsForGood says that a reason is one for which the node ends a pod that had
// begun, none of those for which it rejects one.
func EndsForGood(reason string) bool {
	switch reason {
	case ReasonEvicted, ReasonDeadlineExceeded, ReasonPreempting, ReasonSandboxLost, ReasonAttachLimit:
		return true
	}
	return false
}

// Verdict is the answer of admission. The zero value admits.
type Verdict struct {
	// Reason and Message are the kubelet's for a pod that is rejected: OutOfcpu,
	// NodeAffinity, NodePorts …. Empty for one that is admitted.
	Reason, Message string
	// Preempt are the pods that must end first for this one to fit, a critical
	// one; it is admitted when they are gone.
	Preempt []UID
	// Waits says what has to happen before there is a verdict, after which admission is
	// asked again; empty for a verdict.
	Waits string
	// Warning is what the owner of a pod that is admitted should know; empty for nothing.
	Warning string
}

// Admitted says that the pod may start now.
func (v Verdict) Admitted() bool { return v.Reason == "" && len(v.Preempt) == 0 && v.Waits == "" }
