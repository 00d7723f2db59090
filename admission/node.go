package admission

import (
	"errors"
	"maps"
	"os"
	"runtime"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Node is what admission asks of the node. It is read-only once handed over.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []v1.Taint
	// ClusterNode returns the Node as the cluster has it. Its labels and taints take
	// precedence, because others change them in the cluster. It returns nil until a Node was
	// seen. Pods of the cluster are then not compared: the scheduler did that when it bound
	// them, and a node that boots would reject what ran on it. The result is only read.
	// ClusterNode must not block. A node without a cluster uses NoCluster.
	ClusterNode func() *v1.Node
	// Refresh requests another read of the Node of ClusterNode, before that Node is used to
	// reject a pod of the cluster. It returns what the pod waits for until that is done, and then
	// empty. It must not block. A node without a cluster uses NoRefresh.
	Refresh func(uid pod.UID) (waits string)
	// Allocatable is what pods may request together: cpu, memory, pods and whatever else
	// the node has. The node does not count a resource with a slash in its name that is
	// not in it.
	Allocatable v1.ResourceList
	Sysctls     Sysctls
	// StrictGroups says that the runtime honours supplementalGroupsPolicy Strict.
	StrictGroups bool
	// DeclaredFeatures are those in the Node's status, sorted. A pod that needs a feature that
	// nodes declare, and that is not among them, is rejected.
	DeclaredFeatures []string
	// AppArmorError says why profiles cannot be enforced; nil when they can.
	AppArmorError error
	// Pressure returns the conditions of pressure that the node is under; nil for none
	// ever. It must not block.
	Pressure func() []v1.NodeConditionType
	// Swap says whether a container of a pod would get swap, for resizes; nil
	// for none.
	Swap func(p *v1.Pod, c *v1.Container) bool
}

// NoCluster and NoRefresh are ClusterNode and Refresh of a node without a cluster: its pods
// are compared with Labels and Taints.
var (
	NoCluster func() *v1.Node
	NoRefresh func(uid pod.UID) (waits string)
)

// object is the Node that a pod's affinity and tolerations are compared with; nil if they
// cannot be compared yet.
func (n *Node) object(p *v1.Pod) *v1.Node {
	if n.ClusterNode != nil {
		if seen := n.ClusterNode(); seen != nil {
			return seen
		}
		if !pod.IsStatic(p) {
			return nil
		}
	}
	node := &v1.Node{Spec: v1.NodeSpec{Taints: n.Taints}}
	node.Name, node.Labels = n.Name, n.Labels
	return node
}

// Labels are a node's own, as the kubelet sets them, and those that the operator gave.
// The operator's win.
func Labels(name string, given map[string]string) map[string]string {
	all := map[string]string{
		v1.LabelHostname:          name,
		v1.LabelOSStable:          runtime.GOOS,
		v1.LabelArchStable:        runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(all, given)
	return all
}

// HostAppArmor says why this machine cannot enforce AppArmor profiles; nil when
// it can. The kernel answers the same until the next boot.
func HostAppArmor() error {
	if _, err := os.Stat("/sys/kernel/security/apparmor"); err == nil {
		if enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err == nil && len(enabled) > 0 && enabled[0] == 'Y' {
			return nil
		}
	}
	return errors.New("AppArmor is not enabled on the host")
}
