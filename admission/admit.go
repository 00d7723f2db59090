package admission

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podd/internal/pod"
)

// Reasons for which a pod is rejected, besides OutOf and the name of a resource;
// they are the status' reason.
const (
	ReasonSysctlForbidden    = "SysctlForbidden"
	ReasonOSLabel            = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                 = "PodOSNotSupported"
	ReasonSupplementalGroups = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeAffinity       = "NodeAffinity"
	ReasonNodeName           = "NodeName"
	ReasonNodePorts          = "NodePorts"
	ReasonTaints             = "TaintToleration"
	ReasonAppArmor           = "AppArmor"
	ReasonUnexpected         = "UnexpectedAdmissionError"
	ReasonFeatureUnsupported = "PodFeatureUnsupported"
	ReasonEvicted            = pod.ReasonEvicted // the node is under pressure
	reasonInsufficient       = "OutOf"
)

// Admit decides whether p may start beside others: the pods that count against
// the node, p not among them. It never fails, changes nothing and may be called
// from any goroutine.
func Admit(n *Node, p *v1.Pod, others []*v1.Pod) pod.Verdict {
	for _, check := range []func(*Node, *v1.Pod) pod.Verdict{pressure, sysctls, osLabel, osField, groupsPolicy} {
		if v := check(n, p); !v.Admitted() {
			return v
		}
	}
	if v := generalFilter(n, p, others); !v.Admitted() {
		return v
	}
	for _, check := range []func(*Node, *v1.Pod) pod.Verdict{appArmor, declaredFeatures} {
		if v := check(n, p); !v.Admitted() {
			return v
		}
	}
	return pod.Verdict{Warning: sharedPort(p, others)}
}

func reject(reason, format string, args ...any) pod.Verdict {
	return pod.Verdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// pressure refuses pods that would make the pressure worse, as the kubelet's eviction manager
// does. Under memory pressure alone it refuses BestEffort pods that do not tolerate the taint
// for it, otherwise all but critical pods.
func pressure(n *Node, p *v1.Pod) pod.Verdict {
	if n.Pressure == nil || pod.IsCritical(p) {
		return pod.Verdict{}
	}
	under := n.Pressure()
	if len(under) == 0 {
		return pod.Verdict{}
	}
	if len(under) == 1 && under[0] == v1.NodeMemoryPressure {
		taint := &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if pod.QOSClass(p) != v1.PodQOSBestEffort || tolerated(taint, p.Spec.Tolerations) {
			return pod.Verdict{}
		}
	}
	return reject(ReasonEvicted, "The node had condition: %v. ", under)
}

func sysctls(n *Node, p *v1.Pod) pod.Verdict {
	if p.Spec.SecurityContext == nil {
		return pod.Verdict{}
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if err := n.Sysctls.check(s.Name, &p.Spec); err != nil {
			return reject(ReasonSysctlForbidden, "forbidden sysctl: %v", err)
		}
	}
	return pod.Verdict{}
}

// osLabel checks the pod's own label, not its node selector, as the kubelet does for
// selectors that were copied there.
func osLabel(_ *Node, p *v1.Pod) pod.Verdict {
	if os, ok := p.Labels[v1.LabelOSStable]; ok && os != runtime.GOOS {
		return reject(ReasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	}
	return pod.Verdict{}
}

func osField(_ *Node, p *v1.Pod) pod.Verdict {
	if p.Spec.OS != nil && string(p.Spec.OS.Name) != runtime.GOOS {
		return reject(ReasonOS, "Failed to admit pod as the OS field doesn't match node OS")
	}
	return pod.Verdict{}
}

func groupsPolicy(n *Node, p *v1.Pod) pod.Verdict {
	sc := p.Spec.SecurityContext
	if sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict && !n.StrictGroups {
		return reject(ReasonSupplementalGroups, "SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)
	}
	return pod.Verdict{}
}

// generalFilter applies the predicates that the kubelet shares with the scheduler. All of
// them are evaluated: a critical pod preempts others only if nothing but resources is
// missing, and of several reasons the first is reported.
func generalFilter(n *Node, p *v1.Pod, others []*v1.Pod) pod.Verdict {
	short := shortages(n, p, others)
	failures := predicateFailures(n, p, others)
	switch {
	case len(short) == 0 && len(failures) == 0:
		return pod.Verdict{}
	case pod.IsCritical(p) && len(failures) > 0:
		return failures[0]
	case pod.IsCritical(p):
		return preempt(p, others, short)
	case len(short) > 0:
		s := short[0]
		return reject(reasonInsufficient+string(s.name), "Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			s.name, s.requested, s.used, s.capacity)
	default:
		return failures[0]
	}
}

// predicateFailures are the rejections that preemption cannot help.
func predicateFailures(n *Node, p *v1.Pod, others []*v1.Pod) []pod.Verdict {
	var all []pod.Verdict
	predicate := func(name, why string) {
		all = append(all, reject(name, "Predicate %s failed: %s", name, why))
	}
	node := n.object(p)
	if node != nil {
		if fits, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); !fits {
			predicate(ReasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector"+n.lacking(node.Labels, p.Spec.NodeSelector))
		}
	}
	if p.Spec.NodeName != "" && p.Spec.NodeName != n.Name {
		predicate(ReasonNodeName, "node(s) didn't match the requested node name")
	}
	if holder, port := portHolder(p, others); holder != nil {
		predicate(ReasonNodePorts, fmt.Sprintf("node(s) didn't have free ports for the requested pod ports: "+
			"host port %s is used by pod %s/%s: give one of them another hostPort, or remove one", port, holder.Namespace, holder.Name))
	}
	if node != nil && !pod.IsStatic(p) && untolerated(node.Spec.Taints, p.Spec.Tolerations) {
		predicate(ReasonTaints, "node(s) had taints that the pod didn't tolerate")
	}
	return all
}

// lacking names, for people, the labels of a selector that the node does not have.
func (n *Node) lacking(labels, selector map[string]string) string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(selector)) {
		if have, ok := labels[name]; !ok || have != selector[name] {
			missing = append(missing, name+"="+selector[name])
		}
	}
	if len(missing) == 0 {
		return ""
	}
	how := "--node-labels"
	if n.ClusterNode != nil {
		how = "kubectl label node"
	}
	return ": the node is not labelled " + strings.Join(missing, ",") + " (" + how + ")"
}

// untolerated looks for taints that end pods; others are the scheduler's.
func untolerated(taints []v1.Taint, tolerations []v1.Toleration) bool {
	for i := range taints {
		if taints[i].Effect == v1.TaintEffectNoExecute && !tolerated(&taints[i], tolerations) {
			return true
		}
	}
	return false
}

func tolerated(taint *v1.Taint, tolerations []v1.Toleration) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		if t.Operator == v1.TolerationOpExists || (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == taint.Value {
			return true
		}
	}
	return false
}

// appArmor rejects profiles that cannot be enforced.
func appArmor(n *Node, p *v1.Pod) pod.Verdict {
	profiles := appArmorProfiles(p)
	if len(profiles) == 0 {
		return pod.Verdict{}
	}
	if n.AppArmorError != nil {
		return reject(ReasonAppArmor, "Cannot enforce AppArmor: %v", n.AppArmorError)
	}
	for _, profile := range profiles {
		if profile.Type == v1.AppArmorProfileTypeLocalhost && (profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "") {
			return reject(ReasonAppArmor, "Cannot enforce AppArmor: invalid empty AppArmor profile name: %q", profile.Type)
		}
	}
	return pod.Verdict{}
}

// appArmorProfiles are those that ask for something of the kernel, whether a
// field names them or an annotation, which is how they were named before 1.30.
func appArmorProfiles(p *v1.Pod) []*v1.AppArmorProfile {
	var all []*v1.AppArmorProfile
	take := func(profile *v1.AppArmorProfile) {
		if profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined {
			all = append(all, profile)
		}
	}
	if p.Spec.SecurityContext != nil {
		take(p.Spec.SecurityContext.AppArmorProfile)
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if sc := c.SecurityContext; kind != pod.EphemeralContainer && sc != nil {
			take(sc.AppArmorProfile)
		}
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			take(annotatedProfile(value))
		}
	}
	return all
}

func annotatedProfile(value string) *v1.AppArmorProfile {
	if value == v1.DeprecatedAppArmorBetaProfileNameUnconfined {
		return nil
	}
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
}
