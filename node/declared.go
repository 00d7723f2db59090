package node

import (
	"slices"

	"podd/internal/features"
)

// declaredFeatures lists the features that podd has among those that nodes can declare.
// ExtendWebSocketsToKubelet is missing because it would make the apiserver leave the translation
// of streams to the node, and runtimes do not speak them.
var declaredFeatures = []string{
	"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
}

// declaredFeatures are also those that a feature gate has switched on, sorted.
func (n *Node) declaredFeatures() []string {
	all := slices.Clone(declaredFeatures)
	if n.cfg.Features.Enabled(features.DRAOptionalNodeOperations) {
		all = append(all, string(features.DRAOptionalNodeOperations))
	}
	slices.Sort(all)
	return all
}
