package node

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/pod"
	"podd/podconfig/manifest"
	"podd/podenv"
)

// registerFeatures registers the kubelet's metric of feature gates, for the gates that podd has.
func registerFeatures(reg prometheus.Registerer, gates features.Set) {
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled", Help: "Whether a feature gate is on (1) or off (0), with its stage.",
	}, []string{"name", "stage"})
	reg.MustRegister(enabled)
	for _, s := range features.Had() {
		on := 0.
		if gates.Enabled(s.Name) {
			on = 1
		}
		enabled.WithLabelValues(string(s.Name), string(s.Stage)).Set(on)
	}
}

// reasonUnsupported is the reason of the event about fields that podd ignores.
const reasonUnsupported = "UnsupportedField"

// inputs adds warnings about alpha fields of a pod that podd ignores. podd rejects a manifest
// with such a field. An apiserver may accept it, with a feature gate that podd does not have or
// that is off on this node.
type inputs struct {
	*podenv.Resolver
	gates features.Set
}

// Sandbox is the resolver's Sandbox with these warnings added.
func (i inputs) Sandbox(p *v1.Pod) (pod.SandboxInputs, error) {
	in, err := i.Resolver.Sandbox(p)
	if err == nil {
		in.Warnings = append(in.Warnings, ignoredFields(&p.Spec, i.gates)...)
	}
	return in, err
}

// ignoredFields returns a warning for each alpha field that podd ignores, up to a few.
func ignoredFields(spec *v1.PodSpec, gates features.Set) (all []pod.Warning) {
	const most = 5
	ignored := manifest.Alpha(spec, gates)
	for i, f := range ignored {
		if i == most {
			all = append(all, pod.Warning{Reason: reasonUnsupported, Message: fmt.Sprintf("and %d more fields of this pod have no effect on this node", len(ignored)-most)})
			break
		}
		all = append(all, pod.Warning{Reason: reasonUnsupported, Message: fmt.Sprintf("%s has no effect on this node: podd does not support %s; %s", f.Path, f.What, f.Hint())})
	}
	return all
}
