package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// OwnConditions are the conditions of pods that the node agent writes. It carries over the
// conditions of others untouched. Either side writes DisruptionTarget (upstream's
// PodConditionSharedByKubelet). Read-only.
var OwnConditions = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	v1.PodResizePending, v1.PodResizeInProgress, v1.DisruptionTarget, v1.AllContainersRestarting,
}

// IsPhaseTerminal says that a phase is final: the pod has ended, and no phase follows.
func IsPhaseTerminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// OwnsCondition says that a condition is one of OwnConditions.
func OwnsCondition(of v1.PodConditionType) bool { return slices.Contains(OwnConditions, of) }
