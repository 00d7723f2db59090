package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"

	"podd/internal/pod"
	"podd/internal/versions"
)

// kubernetes is the release by whose rules podd infers which features a pod needs.
var kubernetes = version.MustParse(versions.Kubernetes)

// declaredFeatures rejects a pod that needs a feature that this node does not declare
// (KEP-5328). A scheduler that checks declared features does not bind such a pod here.
func declaredFeatures(n *Node, p *v1.Pod) pod.Verdict {
	needed, err := ndf.DefaultFramework.InferForPodScheduling(podInfo(p), kubernetes)
	if err != nil {
		return reject(ReasonFeatureUnsupported, "Failed to infer pod's feature requirements: %v", err)
	}
	missing, err := n.lacks(needed)
	switch {
	case err != nil:
		return reject(ReasonFeatureUnsupported, "Failed to match pod's feature requirements against the node: %v", err)
	case len(missing) > 0:
		return reject(ReasonFeatureUnsupported, "Pod requires node features that are not available: %s", strings.Join(missing, ", "))
	}
	return pod.Verdict{}
}

// MissingFeatures returns the features that an update of a running pod needs and that this
// node does not declare (KEP-5328). It returns none if upstream's rules cannot tell. An
// apiserver rejects such an update, unless its admission plugin is off.
func (g *Gate) MissingFeatures(before, after *v1.Pod) []string {
	if len(before.Spec.InitContainers) != len(after.Spec.InitContainers) || changesVolumes(&before.Spec, &after.Spec) {
		return nil // no apiserver allows that, and upstream's rules would panic
	}
	needed, err := ndf.DefaultFramework.InferForPodUpdate(podInfo(before), podInfo(after), kubernetes)
	if err != nil {
		return nil
	}
	missing, err := g.node.lacks(needed)
	if err != nil {
		return nil
	}
	return missing
}

// changesVolumes says that a volume has become an emptyDir, or is none any more.
func changesVolumes(before, after *v1.PodSpec) bool {
	for i := range min(len(before.Volumes), len(after.Volumes)) {
		if (before.Volumes[i].EmptyDir == nil) != (after.Volumes[i].EmptyDir == nil) {
			return true
		}
	}
	return false
}

// lacks returns the needed features that the node does not declare.
func (n *Node) lacks(needed ndf.FeatureSet) ([]string, error) {
	if needed.IsEmpty() {
		return nil, nil
	}
	match, err := ndf.DefaultFramework.MatchNodeFeatureSet(needed, ndf.DefaultFramework.TryMap(n.DeclaredFeatures))
	if err != nil {
		return nil, err
	}
	return match.UnsatisfiedRequirements, nil
}

func podInfo(p *v1.Pod) *ndf.PodInfo { return &ndf.PodInfo{Spec: &p.Spec, Status: &p.Status} }
