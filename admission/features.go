package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"

	"podd/internal/pod"
	"podd/internal/versions"
)

// kubernetes is the release whose rules say which features a pod needs.
var kubernetes = version.MustParse(versions.Kubernetes)

// declaredFeatures rejects a pod that needs a feature which this node does not declare
// (KEP-5328). A scheduler and an apiserver that heed declared features send none.
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
		return reject(ReasonFeatureUnsupported, "%s", missingFeatures(missing))
	}
	return pod.Verdict{}
}

// resizeFeatures returns the features that the change of a running pod needs and that this node
// does not declare.
func resizeFeatures(n *Node, desired, allocated *v1.Pod) []string {
	if len(desired.Spec.InitContainers) != len(allocated.Spec.InitContainers) {
		return nil // no resize; upstream's code reads both by one index
	}
	needed, err := ndf.DefaultFramework.InferForPodUpdate(podInfo(allocated), podInfo(desired), kubernetes)
	if err != nil {
		return nil
	}
	missing, err := n.lacks(needed)
	if err != nil {
		return nil
	}
	return missing
}

// lacks returns which features the node does not declare.
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

// missingFeatures is the kubelet's message; empty if none is missing.
func missingFeatures(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "Pod requires node features that are not available: " + strings.Join(names, ", ")
}

func podInfo(p *v1.Pod) *ndf.PodInfo { return &ndf.PodInfo{Spec: &p.Spec, Status: &p.Status} }
