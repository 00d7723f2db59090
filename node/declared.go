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

// declaredFeatures returns the declared features, including those of feature gates that are on,
// sorted.
func (n *Node) declaredFeatures() []string {
	all := slices.Clone(declaredFeatures)
	if n.cfg.Features.Enabled(features.DRAOptionalNodeOperations) {
		all = append(all, string(features.DRAOptionalNodeOperations))
	}
	slices.Sort(all)
	return all
}
