package admission

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

// aPod is a pod of an apiserver with one container that requests kv.
func aPod(name string, kv ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", pod.UID("uid-"+name)
	p.Annotations = map[string]string{pod.AnnotationSource: "api"}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(kv...)}}}
	return p
}

func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func fromFile(p *v1.Pod) { p.Annotations[pod.AnnotationSource] = "file" }

func port(number int32, ip string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: number, HostIP: ip, Protocol: v1.ProtocolTCP}}
	}
}

func aNode() *Node {
	s, err := NewSysctls("6.1.0-44-amd64", []string{"net.core.somaxconn", "kernel.msg*", "user.*"})
	if err != nil {
		panic(err)
	}
	return &Node{
		Name: "n", Labels: Labels("n", map[string]string{"disk": "ssd"}), Sysctls: s, AppArmorError: errors.New("AppArmor is not enabled on the host"),
		Taints:      []v1.Taint{{Key: "gone", Value: "x", Effect: v1.TaintEffectNoExecute}, {Key: "soft", Effect: v1.TaintEffectNoSchedule}},
		Allocatable: list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", "example.com/gpu", "1", "hugepages-2Mi", "4Mi"),
	}
}

func tolerating(p *v1.Pod) *v1.Pod {
	p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists})
	return p
}

func TestAdmit(t *testing.T) {
	set := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name}}} }
	}
	strict, localhost := v1.SupplementalGroupsPolicyStrict, " "
	always := v1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		pod             *v1.Pod
		others          []*v1.Pod
		reason, message string
	}{
		"nothing asked": {pod: aPod("a")},
		"fits exactly":  {pod: aPod("a", "cpu", "1"), others: []*v1.Pod{aPod("b", "cpu", "1")}},
		"cpu": {pod: aPod("a", "cpu", "1500m"), others: []*v1.Pod{aPod("b", "cpu", "1")},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"},
		"memory": {pod: aPod("a", "memory", "2Gi"),
			reason: "OutOfmemory", message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"},
		"storage": {pod: aPod("a", "ephemeral-storage", "11Gi"), reason: "OutOfephemeral-storage"},
		"pods": {pod: aPod("a"), others: []*v1.Pod{aPod("b"), aPod("c"), aPod("d")},
			reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		"an extended resource":              {pod: aPod("a", "example.com/gpu", "1"), others: []*v1.Pod{aPod("b", "example.com/gpu", "1")}, reason: "OutOfexample.com/gpu"},
		"one that the node does not count":  {pod: aPod("a", "example.com/tpu", "8")},
		"huge pages":                        {pod: aPod("a", "hugepages-2Mi", "6Mi"), reason: "OutOfhugepages-2Mi"},
		"pages of a size the node has none": {pod: aPod("a", "hugepages-1Gi", "1Gi"), reason: "OutOfhugepages-1Gi"},
		"overhead counts": {pod: with(aPod("a", "cpu", "2"), func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "1m") }),
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 2001, used: 0, capacity: 2000"},
		"an init container counts while it runs": {pod: with(aPod("a", "cpu", "1"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("cpu", "3")}}}
		}), reason: "OutOfcpu"},
		"a sidecar counts all the time": {pod: with(aPod("a", "cpu", "1"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list("cpu", "1100m")}}}
		}), reason: "OutOfcpu"},
		"the pod's own requests count instead": {pod: with(aPod("a", "cpu", "1"), func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "3")}
		}), reason: "OutOfcpu"},
		"node selector": {pod: with(aPod("a"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }),
			reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: the node is not labelled disk=hdd (--node-labels)"},
		"a matching selector": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "ssd", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "n"}
		})},
		"required affinity": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"other"}}}}}}}}
		}), reason: "NodeAffinity"},
		"node name": {pod: with(aPod("a"), func(p *v1.Pod) { p.Spec.NodeName = "m" }),
			reason: "NodeName", message: "Predicate NodeName failed: node(s) didn't match the requested node name"},
		"a taken port": {pod: with(aPod("a"), port(80, "")), others: []*v1.Pod{with(aPod("b"), port(80, "10.0.0.1"))},
			reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: " +
				"host port 80/TCP is used by pod default/b: give one of them another hostPort, or remove one"},
		"all of IPv6 and an address":       {pod: with(aPod("a"), port(80, "::")), others: []*v1.Pod{with(aPod("b"), port(80, "10.0.0.1")), with(aPod("c"), port(80, "fd00::1"))}}, // once rejected
		"an address and all of IPv6":       {pod: with(aPod("a"), port(80, "fd00::1")), others: []*v1.Pod{with(aPod("b"), port(80, "::"))}},
		"all of IPv6, twice":               {pod: with(aPod("a"), port(80, "::")), others: []*v1.Pod{with(aPod("b"), port(80, "::"))}, reason: "NodePorts"},
		"all of IPv6 and all":              {pod: with(aPod("a"), port(80, "::")), others: []*v1.Pod{with(aPod("b"), port(80, ""))}, reason: "NodePorts"},
		"the same port of another address": {pod: with(aPod("a"), port(80, "10.0.0.2")), others: []*v1.Pod{with(aPod("b"), port(80, "10.0.0.1"))}},
		"a port of an init container that ends": {pod: with(aPod("a"), port(80, "")), others: []*v1.Pod{with(aPod("b"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}
		})}},
		"a port of a sidecar": {pod: with(aPod("a"), port(80, "0.0.0.0")), others: []*v1.Pod{with(aPod("b"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 80, HostIP: "::"}}}}
		})}, reason: "NodePorts"},
		"the first shortage is told, before other reasons": {pod: with(aPod("a", "cpu", "9", "memory", "9Gi"), func(p *v1.Pod) { p.Spec.NodeName = "m" }), reason: "OutOfcpu"},
		"os label": {pod: with(aPod("a"), func(p *v1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }),
			reason: "PodOSSelectorNodeLabelDoesNotMatch"},
		"os field":    {pod: with(aPod("a"), func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), reason: "PodOSNotSupported"},
		"safe sysctl": {pod: with(aPod("a"), set("net.ipv4.tcp_syncookies"))},
		"forbidden sysctl": {pod: with(aPod("a"), set("vm.swappiness")), reason: "SysctlForbidden",
			message: `forbidden sysctl: "vm.swappiness" not allowlisted: allowedUnsafeSysctls in the configuration names those that pods may set`},
		"allowed unsafe sysctl":            {pod: with(aPod("a"), set("net/core/somaxconn"))},
		"allowed by its beginning":         {pod: with(aPod("a"), set("kernel.msgmax"))},
		"a safe one of Kubernetes 1.37":    {pod: with(aPod("a"), set("net.ipv4.tcp_slow_start_after_idle"))},
		"one of the pod's own users":       {pod: with(with(aPod("a"), set("user.max_user_namespaces")), func(p *v1.Pod) { p.Spec.HostUsers = new(bool) })},
		"one of the host's users":          {pod: with(aPod("a"), set("user.max_user_namespaces")), reason: "SysctlForbidden", message: `forbidden sysctl: "user.max_user_namespaces" not allowed with host User enabled`},
		"a safe one of the host's network": {pod: with(with(aPod("a"), set("net.ipv4.tcp_syncookies")), func(p *v1.Pod) { p.Spec.HostNetwork = true }), reason: "SysctlForbidden", message: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		"one of the host's IPC":            {pod: with(with(aPod("a"), set("kernel.msgmax")), func(p *v1.Pod) { p.Spec.HostIPC = true }), reason: "SysctlForbidden", message: `forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled`},
		"strict groups": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		}), reason: "SupplementalGroupsPolicyNotSupported", message: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		"apparmor": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &localhost}}
		}), reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		"apparmor of an init container": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i", SecurityContext: &v1.SecurityContext{
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}}}
		}), reason: "AppArmor"},
		"apparmor of a sidecar": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i", RestartPolicy: &always, SecurityContext: &v1.SecurityContext{
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &localhost}}}}
		}), reason: "AppArmor"},
		"apparmor of an ephemeral container, which never keeps a pod out": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", SecurityContext: &v1.SecurityContext{
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}}}}
		})},
		"apparmor by annotation": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "runtime/default"
		}), reason: "AppArmor"},
		"unconfined": {pod: with(aPod("a"), func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
		})},
	} {
		got := Admit(aNode(), tolerating(tc.pod), tc.others)
		if got.Reason != tc.reason || tc.message != "" && got.Message != tc.message || len(got.Preempt) > 0 {
			t.Errorf("%s: got %q: %s, want %q: %s", name, got.Reason, got.Message, tc.reason, tc.message)
		}
	}
}

func TestTaints(t *testing.T) {
	tol := func(ts ...v1.Toleration) *v1.Pod {
		return with(aPod("a"), func(p *v1.Pod) { p.Spec.Tolerations = ts })
	}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"none":                   {tol(), ReasonTaints},
		"a static pod is exempt": {with(tol(), fromFile), ""},
		"equal":                  {tol(v1.Toleration{Key: "gone", Value: "x", Effect: v1.TaintEffectNoExecute}), ""},
		"another value":          {tol(v1.Toleration{Key: "gone", Operator: v1.TolerationOpEqual, Value: "y"}), ReasonTaints},
		"exists":                 {tol(v1.Toleration{Key: "gone", Operator: v1.TolerationOpExists}), ""},
		"another effect":         {tol(v1.Toleration{Key: "gone", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}), ReasonTaints},
	} {
		if got := Admit(aNode(), tc.pod, nil); got.Reason != tc.want {
			t.Errorf("%s: got %q: %s, want %q", name, got.Reason, got.Message, tc.want)
		}
	}
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func TestACriticalPodPreempts(t *testing.T) {
	guaranteed := func(name string, kv ...string) *v1.Pod {
		p := tolerating(aPod(name, kv...))
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
		return p
	}
	for name, tc := range map[string]struct {
		pod     *v1.Pod
		others  []*v1.Pod
		reason  string
		message string
		victims []pod.UID
	}{
		"burstable before guaranteed": {
			pod:     with(aPod("crit", "cpu", "1"), fromFile),
			others:  []*v1.Pod{guaranteed("g", "cpu", "1", "memory", "1Mi"), aPod("b", "cpu", "1")},
			victims: []pod.UID{"uid-b"},
		},
		"one that is large enough, not two": {
			pod:     with(aPod("crit", "cpu", "1"), fromFile),
			others:  []*v1.Pod{aPod("b", "cpu", "500m"), aPod("c", "cpu", "1500m")},
			victims: []pod.UID{"uid-c"},
		},
		"the smaller of two that do": {
			pod:     with(aPod("crit", "cpu", "100m"), fromFile),
			others:  []*v1.Pod{aPod("b", "cpu", "1200m", "memory", "2Mi"), aPod("c", "cpu", "800m", "memory", "1Mi")},
			victims: []pod.UID{"uid-c"},
		},
		"a place for it": {
			pod: with(aPod("crit"), fromFile), others: []*v1.Pod{aPod("b", "cpu", "1"), aPod("c"), aPod("d", "cpu", "1")},
			victims: []pod.UID{"uid-c"},
		},
		"a lower priority among critical ones": {
			pod: with(with(aPod("crit", "cpu", "2"), fromFile), priority(7)), others: []*v1.Pod{with(with(aPod("b", "cpu", "1"), fromFile), priority(6))},
			victims: []pod.UID{"uid-b"},
		},
		"by priority alone": {
			pod: tolerating(with(aPod("crit", "cpu", "2"), priority(2_000_000_000))), others: []*v1.Pod{aPod("b", "cpu", "1")},
			victims: []pod.UID{"uid-b"},
		},
		"static pods do not pre-empt one another": {
			pod: with(aPod("crit", "cpu", "2"), fromFile), others: []*v1.Pod{with(aPod("b", "cpu", "1"), fromFile)},
			reason: "UnexpectedAdmissionError", message: "Unexpected error while attempting to recover from admission failure: preemption: " +
				"error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]: the pod requests 2 of cpu, and 1 of the node's 2 are free",
		},
		"nothing is enough": {
			pod: with(aPod("crit", "cpu", "4"), fromFile), others: []*v1.Pod{aPod("b", "cpu", "1")},
			reason: "UnexpectedAdmissionError", message: "Unexpected error while attempting to recover from admission failure: preemption: " +
				"error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 2000), ]: the pod requests 4 of cpu, and 1 of the node's 2 are free",
		},
		"as many as it takes, each once": {
			pod:     with(aPod("crit", "cpu", "2"), fromFile),
			others:  []*v1.Pod{aPod("b", "cpu", "500m"), aPod("c", "cpu", "800m"), aPod("d", "cpu", "700m")},
			victims: []pod.UID{"uid-c", "uid-d", "uid-b"},
		},
		"of two of the same memory the one of less cpu": {
			pod:     with(aPod("crit", "cpu", "100m"), fromFile),
			others:  []*v1.Pod{aPod("b", "cpu", "1200m", "memory", "1Mi"), aPod("c", "cpu", "800m", "memory", "1Mi")},
			victims: []pod.UID{"uid-c"},
		},
		"what overhead frees, too": {
			pod: with(aPod("crit", "cpu", "500m"), fromFile),
			others: []*v1.Pod{aPod("b", "cpu", "1500m"), with(aPod("c", "cpu", "200m"), func(p *v1.Pod) {
				p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m")}
			})},
			victims: []pod.UID{"uid-c"},
		},
		"the same priority does not": {
			pod: with(with(aPod("crit", "cpu", "2"), fromFile), priority(7)), others: []*v1.Pod{with(with(aPod("b", "cpu", "1"), fromFile), priority(7))},
			reason: "UnexpectedAdmissionError",
		},
		"memory": {
			pod:    with(aPod("crit", "memory", "100Gi"), fromFile),
			reason: "UnexpectedAdmissionError", message: "Unexpected error while attempting to recover from admission failure: preemption: " +
				"error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: memory, q: 106300440576), ]: the pod requests 100Gi of memory, and 1Gi of the node's 1Gi are free",
		},
		"huge pages": {
			pod:    with(aPod("crit", "hugepages-2Mi", "6Mi"), fromFile),
			reason: "UnexpectedAdmissionError", message: "Unexpected error while attempting to recover from admission failure: preemption: " +
				"error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: hugepages-2Mi, q: 2097152), ]: the pod requests 6Mi of hugepages-2Mi, and 4Mi of the node's 4Mi are free",
		},
		"not when something else is in its way": {
			pod: with(with(aPod("crit", "cpu", "2"), fromFile), func(p *v1.Pod) { p.Spec.NodeName = "m" }), others: []*v1.Pod{aPod("b", "cpu", "1")},
			reason: "NodeName",
		},
	} {
		got := Admit(aNode(), tc.pod, tc.others)
		if got.Reason != tc.reason || tc.message != "" && got.Message != tc.message || !slices.Equal(got.Preempt, tc.victims) {
			t.Errorf("%s: got %q: %s, victims %v; want %q, %v", name, got.Reason, got.Message, got.Preempt, tc.reason, tc.victims)
		}
	}
}

func TestAdmitResize(t *testing.T) {
	n := aNode()
	old, bigger := tolerating(aPod("a", "cpu", "1", "memory", "1Mi")), tolerating(aPod("a", "cpu", "2", "memory", "2Mi"))
	if got, _ := AdmitResize(n, bigger, old, nil); !got.Admitted() {
		t.Errorf("there is room: got %v", got)
	}
	if got, _ := AdmitResize(n, bigger, old, []*v1.Pod{aPod("b", "cpu", "1")}); got.Reason != v1.PodReasonDeferred || !strings.Contains(got.Message, "enough resource: cpu") {
		t.Errorf("no room: got %v, want Deferred", got)
	}
	n.Swap = func(*v1.Pod, *v1.Container) bool { return true }
	if got, _ := AdmitResize(n, bigger, old, nil); got.Reason != v1.PodReasonInfeasible {
		t.Errorf("a container with swap: got %v, want Infeasible", got)
	}
	for _, p := range []*v1.Pod{old, bigger} {
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	}
	if got, _ := AdmitResize(n, bigger, old, nil); !got.Admitted() {
		t.Errorf("one that is restarted for it: got %v", got)
	}
}

// TestAResizeOfAVolumeInMemoryIsInfeasible, and says which feature the node lacks; another volume's
// size, and a container beside it, are no such resize.
func TestAResizeOfAVolumeInMemoryIsInfeasible(t *testing.T) {
	sized := func(medium v1.StorageMedium, limit, cpu string) *v1.Pod {
		return with(tolerating(aPod("a", "cpu", cpu)), func(p *v1.Pod) {
			e := &v1.EmptyDirVolumeSource{Medium: medium}
			if limit != "" {
				q := resource.MustParse(limit)
				e.SizeLimit = &q
			}
			p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: e}}}
		})
	}
	n := aNode()
	n.DeclaredFeatures = []string{"InPlacePodVerticalScalingInitContainers"}
	reg := prometheus.NewRegistry()
	g := NewGate(n, nil, reg)
	for name, tc := range map[string]struct {
		from, to   *v1.Pod
		infeasible bool
	}{
		"larger":          {sized(v1.StorageMediumMemory, "1Mi", "1"), sized(v1.StorageMediumMemory, "2Mi", "1"), true},
		"smaller":         {sized(v1.StorageMediumMemory, "2Mi", "1"), sized(v1.StorageMediumMemory, "1Mi", "1"), true},
		"with containers": {sized(v1.StorageMediumMemory, "1Mi", "1"), sized(v1.StorageMediumMemory, "2Mi", "2"), true},
		"on disk":         {sized("", "1Mi", "1"), sized("", "2Mi", "1"), false},
		"containers":      {sized(v1.StorageMediumMemory, "1Mi", "1"), sized(v1.StorageMediumMemory, "1Mi", "2"), false},
		"without a limit": {sized(v1.StorageMediumMemory, "", "1"), sized(v1.StorageMediumMemory, "", "2"), false},
	} {
		got := g.AdmitResize(tc.to, tc.from, nil)
		want := pod.Verdict{}
		if tc.infeasible {
			want = pod.Verdict{
				Reason: v1.PodReasonInfeasible, Message: "Memory-backed emptyDir volume resize is disabled",
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	metric := `# HELP kubelet_pod_infeasible_resizes_total Number of infeasible resizes for pods.
# TYPE kubelet_pod_infeasible_resizes_total counter
kubelet_pod_infeasible_resizes_total{reason_detail="memory_volume_resize_gate_off"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(metric), "kubelet_pod_infeasible_resizes_total"); err != nil {
		t.Error(err)
	}
	fewer := sized("", "1Mi", "1")
	more := with(sized("", "1Mi", "1"), func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "new"}} })
	if got := g.AdmitResize(fewer, more, nil); !got.Admitted() {
		t.Errorf("a pod that lost an init container: got %+v", got)
	}
}

// TestAPodThatNeedsAFeatureOfAnotherNodeIsRejected, in the kubelet's words.
func TestAPodThatNeedsAFeatureOfAnotherNodeIsRejected(t *testing.T) {
	restartsAll := func(p *v1.Pod) {
		p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	}
	hostNetwork := func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }
	for name, tc := range map[string]struct {
		pod      *v1.Pod
		declared []string
		missing  string
	}{
		"it needs none":         {aPod("a"), nil, ""},
		"it needs a declared":   {with(aPod("a"), restartsAll), []string{"RestartAllContainersOnContainerExits"}, ""},
		"it needs another":      {with(aPod("a"), restartsAll), []string{"InPlacePodVerticalScalingInitContainers"}, "RestartAllContainersOnContainerExits"},
		"none is declared":      {with(aPod("a"), hostNetwork), nil, "UserNamespacesHostNetworkSupport"},
		"two, and one is there": {with(with(aPod("a"), restartsAll), hostNetwork), []string{"RestartAllContainersOnContainerExits"}, "UserNamespacesHostNetworkSupport"},
		"two":                   {with(with(aPod("a"), restartsAll), hostNetwork), nil, "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport"},
		"a name of tomorrow":    {with(aPod("a"), restartsAll), []string{"RestartAllContainersOnContainerExits", "Unheard"}, ""},
	} {
		n := aNode()
		n.DeclaredFeatures = tc.declared
		got := Admit(n, tolerating(tc.pod), nil)
		want := pod.Verdict{}
		if tc.missing != "" {
			want = pod.Verdict{Reason: "PodFeatureUnsupported", Message: "Pod requires node features that are not available: " + tc.missing}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestSysctlsOfTheNode(t *testing.T) {
	if _, err := NewSysctls("6.1", []string{"vm.*"}); err == nil || !strings.Contains(err.Error(), "vm.*") {
		t.Errorf("a sysctl of the whole node: got %v, want an error that names it", err)
	}
	for release, want := range map[string]bool{"4.4.0-generic": false, "4.5": true, "5.0.1": true, "10.0": true, "?": false} {
		s, err := NewSysctls(release, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.check("net.ipv4.tcp_keepalive_time", &v1.PodSpec{}) == nil; got != want {
			t.Errorf("kernel %s: got %v, want %v", release, got, want)
		}
	}
}

func TestGateCountsRejections(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := NewGate(aNode(), nil, reg)
	g.Admit(tolerating(aPod("a", "example.com/gpu", "2")), nil)
	g.Admit(tolerating(aPod("a", "cpu", "3")), nil)
	g.Admit(tolerating(aPod("a")), nil)
	want := `# HELP kubelet_admission_rejections_total Pods that were rejected on this node, by reason; an extended resource counts as OutOfExtendedResources.
# TYPE kubelet_admission_rejections_total counter
kubelet_admission_rejections_total{reason="OutOfExtendedResources"} 1
kubelet_admission_rejections_total{reason="OutOfcpu"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_admission_rejections_total"); err != nil {
		t.Error(err)
	}
}

// Where AppArmor works, what asks for a profile without a name is rejected.
func TestAppArmorWhereItWorks(t *testing.T) {
	n := aNode()
	n.AppArmorError = nil
	named, blank := "profile", " "
	for name, tc := range map[string]struct {
		profile  v1.AppArmorProfile
		rejected bool
	}{
		"the runtime's": {v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, false},
		"a named one":   {v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &named}, false},
		"no name":       {v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost}, true},
		"a blank name":  {v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &blank}, true},
	} {
		p := tolerating(aPod("a"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &tc.profile}
		if got := Admit(n, p, nil); got.Admitted() == tc.rejected {
			t.Errorf("%s: got %q, %s", name, got.Reason, got.Message)
		}
		if got := Admit(aNode(), p, nil); got.Reason != ReasonAppArmor {
			t.Errorf("%s where AppArmor does not work: got %q, %s", name, got.Reason, got.Message)
		}
	}
	for value, rejected := range map[string]bool{"localhost/profile": false, "localhost/": true, "unconfined": false} {
		p := tolerating(aPod("a"))
		p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = value
		if got := Admit(n, p, nil); got.Admitted() == rejected {
			t.Errorf("annotation %q: got %q, %s", value, got.Reason, got.Message)
		}
	}
}

// A container's share of the swap follows its memory request and cannot change
// under it: neither when it has swap now nor when it would get some.
func TestAResizeOfWhatHasSwapIsInfeasible(t *testing.T) {
	old, bigger := tolerating(aPod("a", "memory", "1Mi")), tolerating(aPod("a", "memory", "2Mi"))
	same := tolerating(aPod("a", "memory", "1Mi", "cpu", "1"))
	added := with(tolerating(aPod("a", "memory", "1Mi")), func(p *v1.Pod) { p.Spec.Containers[0].Name = "new" })
	for name, tc := range map[string]struct {
		desired    *v1.Pod
		has        *v1.Pod // of which containers get swap
		infeasible bool
	}{
		"it has":           {bigger, old, true},
		"it would get":     {bigger, bigger, true},
		"neither":          {bigger, nil, false},
		"the same memory":  {same, old, false},
		"a container more": {added, added, false},
	} {
		n := aNode()
		n.Swap = func(p *v1.Pod, _ *v1.Container) bool { return p == tc.has }
		if got, _ := AdmitResize(n, tc.desired, old, nil); (got.Reason == v1.PodReasonInfeasible) != tc.infeasible {
			t.Errorf("%s: got %q, %s", name, got.Reason, got.Message)
		}
	}
}

// TestUnderPressureOnlyThoseMayStartWhoDoNotMakeItWorse: as with the kubelet.
func TestUnderPressureOnlyThoseMayStartWhoDoNotMakeItWorse(t *testing.T) {
	bestEffort, burstable := aPod("b"), aPod("r", "cpu", "1m")
	tolerant := with(aPod("t"), func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
	})
	others := with(aPod("o"), func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}}
	})
	static, system := with(aPod("s"), fromFile), with(aPod("y"), func(p *v1.Pod) { p.Spec.Priority = new(int32(2000000000)) })
	mirror := with(aPod("m"), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey] = "x" })
	all := []*v1.Pod{bestEffort, burstable, tolerant, others, static, system, mirror}
	type conditions = []v1.NodeConditionType
	for _, tc := range []struct {
		under   conditions
		refused string // by name
		message string
	}{
		{nil, "", ""},
		{conditions{v1.NodeMemoryPressure}, "b o", "The node had condition: [MemoryPressure]. "},
		{conditions{v1.NodeDiskPressure}, "b r t o", "The node had condition: [DiskPressure]. "},
		{conditions{v1.NodePIDPressure}, "b r t o", "The node had condition: [PIDPressure]. "},
		{conditions{v1.NodeMemoryPressure, v1.NodePIDPressure}, "b r t o", "The node had condition: [MemoryPressure PIDPressure]. "},
	} {
		n := aNode()
		n.Taints = nil
		n.Pressure = func() []v1.NodeConditionType { return tc.under }
		var refused []string
		for _, p := range all {
			v := Admit(n, p, nil)
			if v.Admitted() {
				continue
			}
			refused = append(refused, p.Name)
			if v.Reason != ReasonEvicted || v.Message != tc.message {
				t.Errorf("%v: %s: got %+v", tc.under, p.Name, v)
			}
		}
		if got := strings.Join(refused, " "); got != tc.refused {
			t.Errorf("%v: refused %s, want %s", tc.under, got, tc.refused)
		}
	}
}

func TestLabelsAndTaintsAreThoseThatTheClusterHas(t *testing.T) {
	var seen *v1.Node
	n := &Node{
		Name: "n", Labels: Labels("n", map[string]string{"color": "red"}), ClusterNode: func() *v1.Node { return seen },
		Allocatable: list("pods", "10"),
		Taints:      []v1.Taint{{Key: "at-registration", Effect: v1.TaintEffectNoExecute}},
	}
	of := func(color string) *v1.Pod {
		return with(aPod("a"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"color": color} })
	}
	reason := func(p *v1.Pod) string { return Admit(n, p, nil).Reason }
	static := with(of("blue"), func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationSource: "file"} })
	if got := reason(of("blue")); got != "" {
		t.Errorf("before the Node was seen, a pod that the scheduler has bound gets %q", got)
	}
	if got := reason(static); got != ReasonNodeAffinity {
		t.Errorf("before the Node was seen, one of the node's own gets %q", got)
	}
	seen = &v1.Node{}
	seen.Name, seen.Labels = "n", map[string]string{"color": "blue"}
	if got := reason(of("blue")); got != "" {
		t.Errorf("a label that the cluster has set: blue gets %q", got)
	}
	if got := reason(of("red")); got != ReasonNodeAffinity {
		t.Errorf("a label that the cluster has changed: red gets %q", got)
	}
	seen = seen.DeepCopy()
	seen.Spec.Taints = []v1.Taint{{Key: "later", Effect: v1.TaintEffectNoExecute}}
	if got := reason(of("blue")); got != ReasonTaints {
		t.Errorf("a taint that the cluster has set: blue gets %q", got)
	}
}

// TestTheClustersNodeIsReadAgainBeforeItKeepsAPodOut: the watch of the Node may be behind that
// of the pods (kubernetes/kubernetes#133997).
func TestTheClustersNodeIsReadAgainBeforeItKeepsAPodOut(t *testing.T) {
	labelled := &v1.Node{}
	labelled.Labels = map[string]string{"disk": "hdd"}
	tainted := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "gone", Effect: v1.TaintEffectNoExecute}}}}
	selects := func(p *v1.Pod) { p.Spec.NodeSelector = labelled.Labels }
	for name, tc := range map[string]struct {
		pod           *v1.Pod
		before, after *v1.Node
		reads         int
		reason        string
	}{
		"a label that was just set":            {pod: with(aPod("a"), selects), before: &v1.Node{}, after: labelled, reads: 1},
		"a label that it does not have":        {pod: with(aPod("a"), selects), before: &v1.Node{}, after: &v1.Node{}, reads: 1, reason: ReasonNodeAffinity},
		"a taint that was just removed":        {pod: aPod("a"), before: tainted, after: &v1.Node{}, reads: 1},
		"a taint":                              {pod: aPod("a"), before: tainted, after: tainted, reads: 1, reason: ReasonTaints},
		"one that fits":                        {pod: with(aPod("a"), selects), before: labelled},
		"one that does not for another reason": {pod: aPod("a", "cpu", "3"), before: labelled, reason: "OutOfcpu"},
		"a static one":                         {pod: with(with(aPod("a"), selects), fromFile), before: &v1.Node{}, reason: ReasonNodeAffinity},
	} {
		t.Run(name, func(t *testing.T) {
			n := aNode()
			seen, reads := tc.before, 0
			n.ClusterNode = func() *v1.Node { return seen }
			n.Refresh = func(pod.UID) string {
				if seen == tc.after && reads > 0 {
					return ""
				}
				reads++
				return "the Node"
			}
			g := NewGate(n, nil, prometheus.NewRegistry())
			got := g.Admit(tc.pod, nil)
			if got.PendingReason != "" {
				if got.Admitted() || got.Reason != "" {
					t.Errorf("got %+v while the Node is read", got)
				}
				seen = tc.after
				got = g.Admit(tc.pod, nil)
			}
			if got.Reason != tc.reason || got.PendingReason != "" || reads != tc.reads {
				t.Errorf("got %+v after %d reads, want %q after %d", got, reads, tc.reason, tc.reads)
			}
		})
	}
}

// What the kubelet admits, and what overlaps all the same, is told; two protocols and two
// addresses are two ports.
func TestAPodWhoseHostPortOverlapsIsAdmittedWithAWarning(t *testing.T) {
	with := func(name, ip string, protocol v1.Protocol) *v1.Pod {
		p := tolerating(aPod(name))
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 53, HostIP: ip, Protocol: protocol}}
		return p
	}
	const warning = "host port ::1:53/TCP overlaps with one of pod default/b: only one of the two gets what arrives where they do; give one of them another hostPort or hostIP"
	for name, c := range map[string]struct {
		other  *v1.Pod
		reason string
		want   string
	}{
		"another protocol": {with("b", "", v1.ProtocolUDP), "", ""},
		"another address":  {with("b", "127.0.0.1", v1.ProtocolTCP), "", ""},
		"all of IPv6":      {with("b", "::", v1.ProtocolTCP), "", warning},
		"another spelling": {with("b", "0:0::1", v1.ProtocolTCP), "", warning},
		"all":              {with("b", "", v1.ProtocolTCP), ReasonNodePorts, ""},
	} {
		if got := Admit(aNode(), with("a", "::1", v1.ProtocolTCP), []*v1.Pod{c.other}); got.Reason != c.reason || got.Warning != c.want {
			t.Errorf("%s: got %+v, want reason %q, warning %q", name, got, c.reason, c.want)
		}
	}
}
