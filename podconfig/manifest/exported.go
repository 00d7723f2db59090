package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// exportedField is a field of a pod: its path, and the name of its value or "".
type exportedField struct{ path, name string }

// exportedFields are the fields that a cluster added to a pod and that prevent it from
// running on a node without one; nil for a pod that was not exported from an
// apiserver (kubectl get pod -o yaml). What clean drops is not among them.
func exportedFields(p *v1.Pod, nodeName string) []exportedField {
	m := &p.ObjectMeta
	if m.UID == "" && m.ResourceVersion == "" && len(m.OwnerReferences) == 0 && len(m.ManagedFields) == 0 && p.Status.Phase == "" {
		return nil
	}
	var out []exportedField
	add := func(set bool, path, name string) {
		if set {
			out = append(out, exportedField{path, name})
		}
	}
	add(p.Spec.ServiceAccountName != "", "spec.serviceAccountName", "")
	add(p.Spec.DeprecatedServiceAccount != "", "spec.serviceAccount", "")
	tokens := map[string]bool{}
	for i, v := range p.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			tokens[v.Name] = true
			add(true, fmt.Sprintf("spec.volumes[%d]", i), v.Name)
		}
	}
	for path, c := range pod.ContainerPaths(&p.Spec) {
		for i, mount := range c.VolumeMounts {
			add(tokens[mount.Name], fmt.Sprintf("%s.volumeMounts[%d]", path, i), mount.Name)
		}
	}
	if len(out) > 0 { // alone it is for admission to refuse
		add(boundElsewhere(p, nodeName), "spec.affinity.nodeAffinity", "another node")
	}
	return out
}

// boundElsewhere says that the pod belongs to a DaemonSet, on another node.
func boundElsewhere(p *v1.Pod, nodeName string) bool {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == v1.NodeSelectorOpIn && !slices.Contains(f.Values, nodeName) {
				return true
			}
		}
	}
	return false
}

// exportedFault is one fault for all such fields of an exported pod.
func exportedFault(fields []exportedField, text *strictyaml.Decoded) advice.Fault {
	var all []string
	for _, f := range fields {
		if f.name != "" {
			f.path += " (" + advice.Shorten(f.name) + ")"
		}
		all = append(all, f.path)
	}
	const few = 20
	if len(all) > few {
		all = append(all[:few], fmt.Sprintf("and %d more", len(all)-few))
	}
	return advice.Fault{Line: text.Line(fields[0].path),
		Message: "this pod was exported from a cluster; remove what the cluster added: " + strings.Join(all, ", "),
		Hint:    "its status and the other fields that a cluster sets may stay: podd ignores them"}
}

// pathsOf are the paths of fields.
func pathsOf(fields []exportedField) map[string]bool {
	out := make(map[string]bool, len(fields))
	for _, f := range fields {
		out[f.path] = true
	}
	return out
}

// covers says that a path is one of paths or below one.
func covers(paths map[string]bool, path string) bool {
	for len(paths) > 0 {
		if paths[path] {
			return true
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	return false
}
