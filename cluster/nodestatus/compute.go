package nodestatus

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are the facts that do not change while podd runs.
type Facts struct {
	// Name is the Node's name; Hostname is its label and address.
	Name, Hostname string
	// Labels are the configured labels. Taints and Unschedulable apply to a new Node only.
	Labels        map[string]string
	Taints        []v1.Taint
	Unschedulable bool
	ProviderID    string
	// ExternalCloudProvider says that a cloud controller manager initializes the Node and sets its
	// addresses.
	ExternalCloudProvider bool
	// NodeIPs are the configured addresses. An unspecified one asks for any address of its
	// family. Only a cloud controller manager uses them.
	NodeIPs               []netip.Addr
	Capacity, Allocatable v1.ResourceList
	System                v1.NodeSystemInfo
	// Port is the port of the kubelet's API; 0 for none.
	Port            int32
	RuntimeHandlers []v1.NodeRuntimeHandler
	// StrictGroups says that the runtime supports supplementalGroupsPolicy Strict.
	StrictGroups bool
	// DeclaredFeatures are the features that the scheduler and admission look for (KEP-5328). They
	// must be sorted and unique: otherwise the apiserver refuses the whole status.
	DeclaredFeatures []string
}

// State is the part of the status that may change.
type State struct {
	// NotReady is the reason why the node is not ready; nil if it is.
	NotReady error
	// Addresses are IP addresses, primary first.
	Addresses []string
	// MemoryPressure, DiskPressure and PIDPressure are the conditions with these names.
	MemoryPressure, DiskPressure, PIDPressure bool
	Images                                    []v1.ContainerImage
	// VolumesInUse are the attached volumes that must not be detached, sorted.
	VolumesInUse []v1.UniqueVolumeName
	// DeviceCapacity and DeviceAllocatable are the capacity and the allocatable amount of device
	// plugins' resources. A resource that is gone has 0.
	DeviceCapacity, DeviceAllocatable v1.ResourceList
}

// The labels that upstream still sets in addition to those that replaced them.
const (
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"
)

// annotationControllerAttach says that the attach-detach controller attaches volumes, not the
// node.
const annotationControllerAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// Names from upstream's k8s.io/cloud-provider/api. The annotation tells a cloud controller
// manager the configured addresses. The manager removes the taint once it has initialized the
// Node.
const (
	annotationProvidedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	taintUninitialized       = "node.cloudprovider.kubernetes.io/uninitialized"
)

// defaultLabels returns the labels that the node agent sets itself. Configured labels take
// precedence.
func (f *Facts) defaultLabels() map[string]string {
	return map[string]string{
		v1.LabelHostname:   f.Hostname,
		v1.LabelOSStable:   runtime.GOOS,
		v1.LabelArchStable: runtime.GOARCH,
		labelOSBeta:        runtime.GOOS,
		labelArchBeta:      runtime.GOARCH,
	}
}

// newNode returns the Node to register.
func (f *Facts) newNode(s State, now metav1.Time) *v1.Node {
	labels := f.defaultLabels()
	maps.Copy(labels, f.Labels)
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Name, Labels: labels, Annotations: map[string]string{annotationControllerAttach: "true"},
		},
		Spec: v1.NodeSpec{Taints: slices.Clone(f.Taints), Unschedulable: f.Unschedulable, ProviderID: f.ProviderID},
	}
	if f.ExternalCloudProvider {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	f.update(n, s, now)
	return n
}

// adopt sets the fields of an existing Node that a new one would have and that the node agent
// owns. All other labels, and taints, belong to the cluster once the Node exists
// (NodeRestriction allows the agent no others either).
func (f *Facts) adopt(n *v1.Node) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	configured := f.defaultLabels()
	for key := range configured {
		if value, ok := f.Labels[key]; ok {
			configured[key] = value
		}
	}
	for _, key := range []string{v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelInstanceTypeStable} {
		if value, ok := f.Labels[key]; ok {
			configured[key] = value
		}
	}
	maps.Copy(n.Labels, configured)
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotationControllerAttach] = "true"
	f.annotateNodeIPs(n)
}

// annotateNodeIPs sets the annotation that tells a cloud controller manager the configured
// addresses.
func (f *Facts) annotateNodeIPs(n *v1.Node) {
	var given []string
	for _, ip := range f.NodeIPs {
		if !ip.IsUnspecified() {
			given = append(given, ip.String())
		}
	}
	if !f.ExternalCloudProvider || len(given) == 0 {
		delete(n.Annotations, annotationProvidedNodeIP)
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotationProvidedNodeIP] = strings.Join(given, ",")
}

// update sets the status of a Node. It keeps conditions of others, and resources that podd does
// not know (extended ones): others write their capacity, and all of it is allocatable.
func (f *Facts) update(n *v1.Node, s State, now metav1.Time) {
	st := &n.Status
	f.annotateNodeIPs(n)
	st.Addresses = f.addresses(st.Addresses, s.Addresses)
	st.Capacity = withForeignResources(f.Capacity, st.Capacity)
	maps.Copy(st.Capacity, s.DeviceCapacity)
	st.Allocatable = withForeignResources(f.Allocatable, st.Capacity)
	maps.Copy(st.Allocatable, s.DeviceAllocatable)
	st.NodeInfo = f.System
	st.NodeInfo.OperatingSystem, st.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	st.DaemonEndpoints = v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: f.Port}}
	st.Images = s.Images
	st.VolumesInUse = s.VolumesInUse
	st.RuntimeHandlers = f.RuntimeHandlers
	strict := f.StrictGroups
	st.DeclaredFeatures = f.DeclaredFeatures
	st.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &strict}
	for _, c := range f.conditions(s, st.Capacity) {
		setCondition(st, c, now)
	}
}

// withForeignResources returns the resources that podd knows, plus those in list that it does not.
func withForeignResources(known, list v1.ResourceList) v1.ResourceList {
	out := known.DeepCopy()
	if out == nil {
		out = v1.ResourceList{}
	}
	for name, amount := range list {
		if _, ok := known[name]; !ok && !isNativeResource(name) {
			out[name] = amount
		}
	}
	return out
}

// zeroExtendedResources sets the extended resources of a list to 0.
func zeroExtendedResources(list v1.ResourceList) {
	for name := range list {
		if !isNativeResource(name) {
			list[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

// addresses returns the addresses in the kubelet's order: the IP addresses, then the host's
// name. With a cloud controller manager, the Node's existing addresses stay; if none are
// configured, the manager also supplies the IP addresses.
func (f *Facts) addresses(old []v1.NodeAddress, ips []string) []v1.NodeAddress {
	switch {
	case f.ExternalCloudProvider && len(old) > 0:
		return old
	case f.ExternalCloudProvider && len(f.NodeIPs) == 0:
		ips = nil
	}
	var out []v1.NodeAddress
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: f.Hostname})
}

// statusChanged reports whether two statuses differ in more than the time of the last heartbeat.
func statusChanged(a, b *v1.NodeStatus) bool {
	return !equality.Semantic.DeepEqual(withoutHeartbeats(a), withoutHeartbeats(b))
}

func withoutHeartbeats(s *v1.NodeStatus) *v1.NodeStatus {
	out := *s
	out.Conditions = slices.Clone(s.Conditions)
	for i := range out.Conditions {
		out.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return &out
}
