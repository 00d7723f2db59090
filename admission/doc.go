// Package admission decides whether a pod may run on this node: the kubelet's
// checks in the kubelet's order, with its reasons and messages
// (pkg/kubelet/lifecycle, pkg/kubelet/sysctl, pkg/kubelet/preemption and the
// general predicates of pkg/scheduler).
//
//	pressure ─► sysctls ─► OS label and field ─► supplementalGroupsPolicy ─► resources, node affinity,
//	node name, host ports, taints (a critical pod may pre-empt others) ─► AppArmor
//
// Admit and AdmitResize are pure: they depend only on their arguments. Gate adds the
// node's facts, has the devices of device plugins allocated, and counts rejections.
//
// The kubelet also checks, and podd need not: node-declared features (podd has all of
// them), its feature gates, and shutdown of the node, which admission does not know.
//
// Every static pod is critical to the kubelet, whatever its priority, and only a
// pod of lower priority, both given, may be pre-empted by it. On a node without
// an apiserver a pod that does not fit is therefore rejected with
// UnexpectedAdmissionError, not with OutOfcpu: no victims were found. podd says
// the same.
package admission
