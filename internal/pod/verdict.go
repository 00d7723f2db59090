package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Reasons for which the node ends a pod or never starts it, as in PodStatus.Reason. They
// are the kubelet's words, except for SandboxLost: the kubelet leaves such a pod Pending
// for ever.
const (
	ReasonEvicted          = "Evicted"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonPreempting       = "Preempting"
	ReasonSandboxLost      = "SandboxLost"
	ReasonAttachLimit      = "VolumeAttachmentLimitExceeded"
	ReasonNodeShutdown     = "Terminated"
)

// Termination is the node's decision that a pod must stop for good although its source still wants
// it: it becomes Failed with this reason. The zero value means no such decision.
type Termination struct {
	Reason, Message string
	// Grace replaces the pod's own grace period; nil keeps it.
	Grace *time.Duration
	// Condition is added to the status (DisruptionTarget …); nil for none.
	Condition *v1.PodCondition
}

// Eviction says why, and how, the node gives up a pod that uses too much of it.
type Eviction struct {
	// Signal is the label under which it is counted: the kubelet's name for the resource
	// that ran short, or for the exceeded limit (emptydirfs.limit …).
	Signal string
	// Message is the message of the status and the event, in the kubelet's words.
	Message string
	// Grace and Condition are the Termination's.
	Grace     *time.Duration
	Condition *v1.PodCondition
}

// IsTerminationReason says that the node ends pods that had begun for this reason, as opposed to
// reasons for rejecting a pod.
func IsTerminationReason(reason string) bool {
	switch reason {
	case ReasonEvicted, ReasonDeadlineExceeded, ReasonPreempting, ReasonSandboxLost, ReasonAttachLimit, ReasonNodeShutdown:
		return true
	}
	return false
}

// Verdict is the answer of admission. The zero value admits.
type Verdict struct {
	// Reason and Message are the kubelet's for a rejected pod: OutOfcpu, NodeAffinity,
	// NodePorts …. They are empty for an admitted one.
	Reason, Message string
	// Preempt are the pods that must end first for this pod, a critical one, to fit. It is
	// admitted when they are gone.
	Preempt []UID
	// PreemptFor is the first resource that the pod lacks, if Preempt is not empty. It is a
	// label value of kubelet_preemptions, from a small closed set.
	PreemptFor string
	// PendingReason says what has to happen before there is a verdict; then admission is asked
	// again. It is empty for a verdict.
	PendingReason string
	// Warning tells the owner of an admitted pod what they should know; empty for nothing.
	Warning string
}

// Admitted says that the pod may start now.
func (v Verdict) Admitted() bool {
	return v.Reason == "" && len(v.Preempt) == 0 && v.PendingReason == ""
}
