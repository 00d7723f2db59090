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

// Facts are what does not change while podd runs.
type Facts struct {
	// Name is the Node's; Hostname its label and address.
	Name, Hostname string
	// Labels are the configured ones, Taints and Unschedulable those of a new Node.
	Labels        map[string]string
	Taints        []v1.Taint
	Unschedulable bool
	ProviderID    string
	// Cloud: a cloud controller manager initializes the Node, and says which addresses it has.
	Cloud bool
	// NodeIPs are the configured addresses, of which one that is unspecified asks for any of
	// its family. They matter to such a manager only.
	NodeIPs               []netip.Addr
	Capacity, Allocatable v1.ResourceList
	System                v1.NodeSystemInfo
	// Port is that of the kubelet's API; 0 for none.
	Port     int32
	Handlers []v1.NodeRuntimeHandler
	// StrictGroups: the runtime supports supplementalGroupsPolicy Strict.
	StrictGroups bool
	// Declared are the features that the scheduler and admission look for (KEP-5328), sorted
	// and without doubles: the apiserver refuses the whole status otherwise.
	Declared []string
}

// State is what may change.
type State struct {
	// NotReady says why the node is not ready; nil if it is.
	NotReady error
	// Addresses are IP addresses, primary first.
	Addresses []string
	// MemoryPressure, DiskPressure and PIDPressure are the conditions of these names.
	MemoryPressure, DiskPressure, PIDPressure bool
	Images                                    []v1.ContainerImage
	// VolumesInUse are the attached volumes that must not be detached, sorted.
	VolumesInUse []v1.UniqueVolumeName
	// Devices and UsableDevices are the capacity and the allocatable of device plugins'
	// resources. Ones that are gone have 0.
	Devices, UsableDevices v1.ResourceList
}

// The labels that upstream still sets beside those that replaced them.
const (
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"
)

// annotationControllerAttach says that the attach-detach controller attaches volumes, and
// not the node.
const annotationControllerAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// What upstream's k8s.io/cloud-provider/api calls so: the annotation tells a cloud controller
// manager the configured addresses, and the taint goes when it has initialized the Node.
const (
	annotationProvidedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	taintUninitialized       = "node.cloudprovider.kubernetes.io/uninitialized"
)

// defaultLabels are those that the node agent sets itself; the configured ones take
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
	if f.Cloud {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	f.update(n, s, now)
	return n
}

// adopt sets in an existing Node what a new one would have and the node agent owns. Other
// labels, and taints, are the cluster's, once the Node exists (NodeRestriction allows the
// agent no others either).
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
	f.provide(n)
}

// provide tells a cloud controller manager the configured addresses.
func (f *Facts) provide(n *v1.Node) {
	var given []string
	for _, ip := range f.NodeIPs {
		if !ip.IsUnspecified() {
			given = append(given, ip.String())
		}
	}
	if !f.Cloud || len(given) == 0 {
		delete(n.Annotations, annotationProvidedNodeIP)
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotationProvidedNodeIP] = strings.Join(given, ",")
}

// update sets the status of a Node. Conditions of others stay, as do resources that podd
// does not know (extended ones): others write their capacity, all of which is allocatable.
func (f *Facts) update(n *v1.Node, s State, now metav1.Time) {
	st := &n.Status
	f.provide(n)
	st.Addresses = f.addresses(st.Addresses, s.Addresses)
	st.Capacity = withOthers(f.Capacity, st.Capacity)
	maps.Copy(st.Capacity, s.Devices)
	st.Allocatable = withOthers(f.Allocatable, st.Capacity)
	maps.Copy(st.Allocatable, s.UsableDevices)
	st.NodeInfo = f.System
	st.NodeInfo.OperatingSystem, st.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	st.DaemonEndpoints = v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: f.Port}}
	st.Images = s.Images
	st.VolumesInUse = s.VolumesInUse
	st.RuntimeHandlers = f.Handlers
	strict := f.StrictGroups
	st.DeclaredFeatures = f.Declared
	st.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &strict}
	for _, c := range f.conditions(s, st.Capacity) {
		setCondition(st, c, now)
	}
}

// withOthers adds to what podd knows of resources what a list says of others.
func withOthers(known, list v1.ResourceList) v1.ResourceList {
	out := known.DeepCopy()
	if out == nil {
		out = v1.ResourceList{}
	}
	for name, amount := range list {
		if _, ok := known[name]; !ok && !native(name) {
			out[name] = amount
		}
	}
	return out
}

// withoutExtended sets the extended resources of a list to 0.
func withoutExtended(list v1.ResourceList) {
	for name := range list {
		if !native(name) {
			list[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

// addresses are in the kubelet's order: the IP addresses, then the host's name. Those that the
// Node has stay where a cloud controller manager sets them, which is what tells of IP
// addresses, too, if none are configured.
func (f *Facts) addresses(old []v1.NodeAddress, ips []string) []v1.NodeAddress {
	switch {
	case f.Cloud && len(old) > 0:
		return old
	case f.Cloud && len(f.NodeIPs) == 0:
		ips = nil
	}
	var out []v1.NodeAddress
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: f.Hostname})
}

// changed says whether two statuses differ in more than the time of the last heartbeat.
func changed(a, b *v1.NodeStatus) bool {
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
