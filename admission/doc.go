// Package admission decides whether a pod may run on this node: the kubelet's
// checks in the kubelet's order, with its reasons and messages
// (pkg/kubelet/lifecycle, pkg/kubelet/sysctl, pkg/kubelet/preemption and the
// general predicates of pkg/scheduler).
//
//	pressure ─► sysctls ─► OS label and field ─► supplementalGroupsPolicy ─► resources, node affinity,
//	node name, host ports, taints (a critical pod may pre-empt others) ─► AppArmor ─► declared features
//
// Admit and AdmitResize are pure: they depend only on their arguments. Gate adds the
// node's facts, has the devices of device plugins allocated, and counts rejections.
//
// The kubelet also checks its feature gates and the node's shutdown, which admission does
// not know. podd need not check these.
//
// The kubelet treats every static pod as critical, whatever its priority. A static pod
// may pre-empt only a pod of lower priority, and only if both have a priority. On a node
// without an apiserver, a pod that does not fit is therefore rejected with
// UnexpectedAdmissionError, not with OutOfcpu: no victims were found. podd says the same.
package admission
