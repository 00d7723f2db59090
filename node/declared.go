package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"podd/internal/features"
)

// declaredFeatures lists the features that podd has among those that nodes can declare.
// ExtendWebSocketsToKubelet is missing because it would make the apiserver leave the translation
// of streams to the node, and runtimes do not speak them.
var declaredFeatures = []string{
	"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
}

// declaredFeatures are also those that a feature gate has switched on, sorted.
func (n *runtimeParts) declaredFeatures() []string {
	all := slices.Clone(declaredFeatures)
	if n.cfg.Features.Enabled(features.DRAOptionalNodeOperations) {
		all = append(all, string(features.DRAOptionalNodeOperations))
	}
	slices.Sort(all)
	return all
}

// missingFeatures returns agent.Parts.MissingFeatures for a node that declares these features and
// has this version of Kubernetes; nil if that is none.
func missingFeatures(kubernetes string, declared []string) func(before, after *v1.Pod) []string {
	v, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return nil
	}
	has := ndf.DefaultFramework.TryMap(slices.Sorted(slices.Values(declared))) // it reads them in order
	return func(before, after *v1.Pod) []string {
		// Upstream compares these by their index; an apiserver does not let them change.
		if len(before.Spec.InitContainers) != len(after.Spec.InitContainers) {
			return nil
		}
		needs, err := ndf.DefaultFramework.InferForPodUpdate(info(before), info(after), v)
		if err != nil {
			return nil
		}
		result, err := ndf.DefaultFramework.MatchNodeFeatureSet(needs, has)
		if err != nil || result.IsMatch {
			return nil
		}
		return result.UnsatisfiedRequirements
	}
}

func info(p *v1.Pod) *types.PodInfo { return &types.PodInfo{Spec: &p.Spec, Status: &p.Status} }
