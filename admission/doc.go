// Package admission decides whether a pod may run on this node: the kubelet's
// checks in the kubelet's order, with its reasons and messages
// (pkg/kubelet/lifecycle, pkg/kubelet/sysctl, pkg/kubelet/preemption and the
// general predicates of pkg/scheduler).
//
//	sysctls ─► OS label and field ─► supplementalGroupsPolicy ─► resources, node affinity,
//	node name, host ports, taints (a critical pod may pre-empt others) ─► AppArmor
//
// Admit and AdmitResize are pure: they look at nothing but their arguments. Gate
// puts the node's facts behind them and counts rejections.
//
// What the kubelet asks besides and podd does not need to: node-declared features
// (each of them podd has), its feature gates, and pressure and shutdown of the
// node, which are not admission's to know.
//
// Every static pod is critical to the kubelet, whatever its priority, and only a
// pod of lower priority, both given, may be pre-empted by it. On a node without
// an apiserver a pod that does not fit is therefore rejected with
// UnexpectedAdmissionError, not with OutOfcpu: no victims were found. podd says
// the same.
package admission
