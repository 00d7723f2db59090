package manifest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podd/internal/pod"
	"podd/internal/podapi"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// admit completes a decoded pod in place and returns what is wrong with it, in this
// order: the errors of upstream's validation, violations of the rules of static pods,
// and what podd does not support yet.
func admit(p *v1.Pod, opt Options, text *strictyaml.Decoded) []advice.Fault {
	given, namespace := p.Name, p.Namespace
	parts := exportedFields(p, opt.NodeName)
	foreign := pathsOf(parts)
	clean(p, opt)
	references := apiReferences(p) // before each alias of a field has the value of the other
	podapi.Default(p)
	out := validationFaults(p, text, foreign)
	if len(parts) > 0 {
		out = append(out, exportedFault(parts, text))
	}
	add := func(path, message, hint string) {
		if len(out) > maxProblems || covers(foreign, path) {
			return // and the last one says that there are more
		}
		for _, f := range out {
			if f.Field == path || strings.HasPrefix(f.Field, path+".") || strings.HasPrefix(f.Field, path+"[") {
				return // one sentence a field: the first authority has spoken
			}
		}
		out = append(out, advice.Fault{Line: text.Line(path), Field: path, Message: message, Hint: hint})
	}
	for _, r := range references {
		add(r.path, "static pods may not reference "+r.resource, r.hint)
	}
	if len(out) == 0 {
		// In case upstream knows a reference that apiReferences does not.
		if resource, err := podapi.APIReference(pod.WithoutReferences(p)); err != nil {
			add("spec", err.Error(), "")
		} else if resource != "" {
			add("spec", "static pods may not reference "+resource, clusterHint)
		}
	}
	for _, u := range unsupportedFields(p, opt.Features) {
		add(u.path, u.message, u.hint)
	}
	p.Name = staticName(given, opt.NodeName)
	if msgs := validation.IsDNS1123Subdomain(p.Name); len(out) == 0 && len(msgs) > 0 {
		add("metadata.name", fmt.Sprintf("the pod's full name %q (its name, a dash and the node's name) is not valid: %s",
			advice.Shorten(p.Name), msgs[0]), "use a shorter name")
	}
	p.UID = identity(opt, namespace, given, text.Root)
	if n := len(pod.LogDirectory(p.Namespace, p.Name, p.UID)) - pod.MaxFileNameLength; len(out) == 0 && n > 0 {
		add("metadata.name", fmt.Sprintf("the pod cannot start: the name of its log directory (namespace, name, a dash and the node's name, UID) is %d bytes longer than the %d of a file name",
			n, pod.MaxFileNameLength), fmt.Sprintf("use a name or a namespace that is at least %d characters shorter", n))
	}
	annotate(p, opt)
	return out
}

// validationFaults are upstream's validation errors, except those that are reported
// separately. Of several for one field and value the first is kept; one for a request
// that defaulting copied from a limit only repeats that of the limit.
func validationFaults(p *v1.Pod, text *strictyaml.Decoded, apart map[string]bool) []advice.Fault {
	var out []advice.Fault
	told := map[string]bool{}
	volumes := map[string]bool{}
	for _, v := range p.Spec.Volumes {
		volumes[v.Name] = true
	}
	nameless := advice.NamelessVolumeName(p)
	errs := podapi.Validate(p)
	for i, e := range errs {
		key := fmt.Sprint(e.Field, e.Type, e.BadValue)
		if _, written := text.Lines[e.Field]; !written {
			if limit := strings.Replace(e.Field, ".requests[", ".limits[", 1); limit != e.Field {
				key = fmt.Sprint(limit, e.Type, e.BadValue)
			}
		}
		// Upstream does not count an invalid volume, and then reports it as missing
		// at each of its mounts.
		follows := e.Type == field.ErrorTypeNotFound && (volumes[advice.BadText(e)] || advice.BadText(e) == nameless)
		if told[key] || follows || covers(apart, e.Field) {
			continue
		}
		told[key] = true
		if len(out) == maxProblems {
			return append(out, advice.Fault{Line: text.Line(e.Field), Field: "spec",
				Message: fmt.Sprintf("and %d more problems in this pod", len(errs)-i), Hint: "fix the ones above first"})
		}
		out = append(out, advice.ValidationFault(e, p, text))
	}
	return out
}

// clean sets what the node decides about its pods and drops what only an apiserver
// may set (status and bookkeeping of an exported Pod). The result is what upstream's
// kubelet makes of a static pod (pkg/kubelet/config, applyDefaults).
//
// It has no rule for deletionGracePeriodSeconds either, which thus is the grace period
// of a static pod and has precedence over that of the spec.
func clean(p *v1.Pod, opt Options) {
	grace := p.DeletionGracePeriodSeconds
	cleanMeta(&p.ObjectMeta)
	p.DeletionGracePeriodSeconds = grace
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	p.Spec.NodeName = opt.NodeName
	if opt.Source == pod.SourceFile {
		tolerate(&p.Spec)
	}
}

// cleanMeta drops an apiserver's bookkeeping, and sets the namespace.
func cleanMeta(m *metav1.ObjectMeta) {
	m.UID, m.ResourceVersion, m.Generation = "", "", 0
	m.SelfLink = "" //lint:ignore SA1019 old exports still carry it
	m.CreationTimestamp.Reset()
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	m.ManagedFields, m.OwnerReferences = nil, nil
	if m.Namespace == "" {
		m.Namespace = v1.NamespaceDefault
	}
}

// droppedFields names what of a pod's metadata clean drops, and that says something.
func droppedFields(m *metav1.ObjectMeta) (fields []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"uid", m.UID != ""}, {"resourceVersion", m.ResourceVersion != ""}, {"generation", m.Generation != 0},
		{"selfLink", m.SelfLink != ""}, //lint:ignore SA1019 old exports still carry it
		{"creationTimestamp", !m.CreationTimestamp.IsZero()}, {"deletionTimestamp", m.DeletionTimestamp != nil},
		{"managedFields", len(m.ManagedFields) > 0}, {"ownerReferences", len(m.OwnerReferences) > 0},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// tolerate adds the toleration that keeps node problems from evicting the pod.
// Upstream does so for the file source only, and replaces a toleration of the same
// kind that would expire.
func tolerate(spec *v1.PodSpec) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range spec.Tolerations {
		if t := &spec.Tolerations[i]; t.MatchToleration(&all) {
			*t = all
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, all)
}

func annotate(p *v1.Pod, opt Options) {
	a := maps.Clone(p.Annotations)
	if a == nil {
		a = map[string]string{}
	}
	a[pod.AnnotationHash] = string(p.UID)
	a[pod.AnnotationSource] = string(opt.Source)
	a[pod.AnnotationSeen] = opt.Now.Format(time.RFC3339Nano)
	p.Annotations = a
}

// staticName is upstream's: names of static pods are unique in a cluster.
func staticName(name, node string) string { return name + "-" + strings.ToLower(node) }
