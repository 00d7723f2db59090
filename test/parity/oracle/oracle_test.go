package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstreamqos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"podd/admission"
	"podd/cgroup"
	"podd/internal/pod"
)

// rounds is how many random pods each oracle is asked about.
const rounds = 20000

// list is a random list of CPU, memory and huge pages; often empty.
func list(r *rand.Rand, least v1.ResourceList) v1.ResourceList {
	l := v1.ResourceList{}
	add := func(name v1.ResourceName, values ...string) {
		switch r.IntN(3) {
		case 0:
			l[name] = resource.MustParse(values[r.IntN(len(values))])
		case 1:
			if q, ok := least[name]; ok {
				l[name] = q
			}
		}
	}
	add(v1.ResourceCPU, "0", "1m", "3m", "100m", "250m", "1", "1500m", "300")
	add(v1.ResourceMemory, "0", "1", "4Mi", "64Mi", "1Gi", "1500M")
	if r.IntN(8) == 0 {
		add("hugepages-2Mi", "2Mi", "64Mi")
	}
	return l
}

func container(r *rand.Rand, name string) v1.Container {
	c := v1.Container{Name: name}
	c.Resources.Limits = list(r, nil)
	c.Resources.Requests = list(r, c.Resources.Limits)
	for name, limit := range c.Resources.Limits { // as defaulting does
		if _, ok := c.Resources.Requests[name]; !ok {
			c.Resources.Requests[name] = limit
		}
	}
	return c
}

// randomPod is a pod as defaulting and validation leave it, as far as resources go.
func randomPod(r *rand.Rand) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container(r, fmt.Sprint("c", i)))
	}
	for i := range r.IntN(3) {
		c := container(r, fmt.Sprint("i", i))
		if r.IntN(2) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if r.IntN(5) == 0 {
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("8Mi")}
	}
	if r.IntN(4) == 0 {
		c := container(r, "")
		p.Spec.Resources = &c.Resources
	}
	return p
}

func TestClassesAreUpstreams(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		p := randomPod(r)
		if got, want := pod.QOSClass(p), upstreamqos.ComputePodQOS(p); got != want {
			t.Fatalf("got %s, want %s for %+v", got, want, p.Spec)
		}
	}
}

func TestPodCgroupsAreUpstreams(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range rounds {
		p := randomPod(r)
		got := cgroup.PodLimits(cgroup.Settings{}, p)
		want := cm.ResourceConfigForPod(p, true, 100000, false, kubeletconfig.NoneMemoryReservationPolicy)
		value := func(n *int64) int64 {
			if n == nil {
				return 0
			}
			return *n
		}
		wantShares := int64(0)
		if want.CPUShares != nil {
			wantShares = int64(*want.CPUShares)
		}
		if got.CPUShares != wantShares || got.CPUQuota != value(want.CPUQuota) || got.Memory != value(want.Memory) {
			t.Fatalf("got %+v, want shares %d, quota %d, memory %d for %+v", got, wantShares, value(want.CPUQuota), value(want.Memory), p.Spec)
		}
		for size, n := range want.HugePageLimit {
			if got.HugePages[size] != n {
				t.Fatalf("got %v, want huge pages %v for %+v", got.HugePages, want.HugePageLimit, p.Spec)
			}
		}
	}
}

// TestMemoryQoSOfPodsIsUpstreams compares what both write to a pod's cgroup of v2.
func TestMemoryQoSOfPodsIsUpstreams(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	const factor = 0.7
	set := 0
	for range rounds {
		p := randomPod(r)
		got := cgroup.PodLimits(cgroup.Settings{MemoryQoS: pod.MemoryQoSRules{Tiered: true, ThrottlingFactor: factor}}, p).MemoryQoS
		want := cm.ResourceConfigForPod(p, true, 100000, true, kubeletconfig.TieredReservationMemoryReservationPolicy)
		cm.ApplyPodLevelMemoryHigh(p, want, factor)
		set += len(want.Unified)
		for name, bytes := range map[string]int64{"memory.min": got.Min, "memory.low": got.Low, "memory.high": got.High} {
			text := want.Unified[name]
			if text == "" {
				text = "0" // or max
			}
			if text != fmt.Sprint(bytes) {
				t.Fatalf("%s: got %d, want %s for %+v", name, bytes, text, p.Spec)
			}
		}
	}
	if set < rounds/2 {
		t.Errorf("only %d settings were compared", set)
	}
}

func TestWeightsAndQuotasAreUpstreams(t *testing.T) {
	for milli := int64(0); milli < 300000; milli += 1 + milli/50 {
		if got, want := pod.CPUShares(milli), int64(cm.MilliCPUToShares(milli)); got != want {
			t.Errorf("shares of %dm: got %d, want %d", milli, got, want)
		}
		if got, want := pod.CPUQuota(milli, 100e6), cm.MilliCPUToQuota(milli, 100000); got != want {
			t.Errorf("quota of %dm: got %d, want %d", milli, got, want)
		}
	}
}

// TestAdmissionIsUpstreams asks both about pods on a small node with others on it.
func TestAdmissionIsUpstreams(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	allocatable := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("2Gi"),
		v1.ResourcePods: resource.MustParse("4"), "hugepages-2Mi": resource.MustParse("32Mi"),
	}
	labels := admission.Labels("n", map[string]string{"disk": "ssd"})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Status: v1.NodeStatus{Allocatable: allocatable, Capacity: allocatable}}
	sysctls, err := admission.NewSysctls("6.1.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ours := &admission.Node{Name: "n", Labels: labels, Allocatable: allocatable, Sysctls: sysctls}
	handler := lifecycle.NewPredicateAdmitHandler(
		func(context.Context, bool) (*v1.Node, error) { return node, nil },
		lifecycle.NewAdmissionFailureHandlerStub(),
		func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil },
	)
	refused := 0
	for range rounds / 10 {
		p := randomPod(r)
		p.Spec.NodeName = "n"
		decorate(r, p)
		var others []*v1.Pod
		for i := range r.IntN(5) {
			o := randomPod(r)
			o.Name, o.UID = fmt.Sprint("o", i), pod.UID(fmt.Sprint("o", i))
			o.Spec.NodeName = "n"
			decorate(r, o)
			others = append(others, o)
		}
		want := handler.Admit(t.Context(), &lifecycle.PodAdmitAttributes{Pod: p, OtherPods: others})
		got := admission.Admit(ours, p, others)
		if got.Admitted() != want.Admit || got.Reason != want.Reason {
			t.Fatalf("got %+v, want %+v for %+v", got, want, p.Spec)
		}
		if !want.Admit {
			refused++
		}
	}
	if refused < rounds/100 || refused > rounds/10-rounds/100 {
		t.Errorf("%d of %d were refused: the pods are no test", refused, rounds/10)
	}
}

// decorate asks for a place, a port or an operating system, sometimes.
func decorate(r *rand.Rand, p *v1.Pod) {
	switch r.IntN(8) {
	case 0:
		p.Spec.NodeSelector = map[string]string{"disk": []string{"ssd", "tape"}[r.IntN(2)]}
	case 1:
		ip := []string{"", "0.0.0.0", "::", "10.0.0.1", "fd00::1"}[r.IntN(5)]
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(80 + r.IntN(2)), HostIP: ip, Protocol: v1.ProtocolTCP}}
	case 2:
		p.Spec.OS = &v1.PodOS{Name: []v1.OSName{v1.Linux, v1.Windows}[r.IntN(2)]}
	case 3:
		p.Spec.Containers[0].Resources.Requests["example.test/widget"] = resource.MustParse("1")
	case 4:
		p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: []string{"linux", "windows"}[r.IntN(2)]}
	}
}
