package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func stops(signal v1.Signal) option {
	return func(s *scene) { s.spec().Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &signal} }
}

// granted says that the node gave a container that much memory, whatever the
// spec says.
func granted(name, memory string) option {
	return func(s *scene) {
		l := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
		s.Allocated = map[string]v1.ResourceRequirements{name: {Requests: l, Limits: l.DeepCopy()}}
	}
}

// holds says that the runtime holds a container to that much memory.
func holds(name string, bytes int64) option {
	return func(s *scene) {
		s.Observed.LatestContainer(name).Resources = &pod.ContainerResources{CPUShares: 2, CPUPeriod: 100000, MemoryLimitInBytes: bytes}
	}
}

func resizing(s *scene) {
	s.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(90))}}
}

// TestResourcesOfAContainer: what was granted, and what it is held to.
func TestResourcesOfAContainer(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		if len(l) == 0 {
			return nil
		}
		return l
	}
	show := func(l v1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	for _, tt := range []struct {
		name             string
		requests, limits v1.ResourceList
		seen             *pod.ContainerResources
		stopped          bool
		want             string // requests, limits
	}{
		{"none", nil, nil, &pod.ContainerResources{CPUShares: 2}, false, "0 0, 0 0"},
		{"as asked", list("100m", "64Mi"), list("200m", "64Mi"), &pod.ContainerResources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimitInBytes: 64 << 20}, false, "100m 64Mi, 200m 64Mi"},
		{"not resized yet", list("100m", "64Mi"), list("200m", "64Mi"), &pod.ContainerResources{CPUShares: 51, CPUQuota: 10000, CPUPeriod: 100000, MemoryLimitInBytes: 32 << 20}, false, "50m 64Mi, 100m 32Mi"},
		{"the runtime does not say", list("100m", "64Mi"), list("200m", "64Mi"), nil, false, "100m 64Mi, 200m 64Mi"},
		{"ended", list("100m", ""), list("200m", ""), &pod.ContainerResources{CPUShares: 51}, true, "100m 0, 200m 0"},
		{"less than the least shares", list("1m", ""), nil, &pod.ContainerResources{CPUShares: 2}, false, "1m 0, 0 0"},
		{"less than the least quota", list("1m", ""), list("5m", ""), &pod.ContainerResources{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100000}, false, "1m 0, 5m 0"},
		{"no quota", list("1", ""), list("2", ""), &pod.ContainerResources{CPUShares: 1024, CPUQuota: -1, CPUPeriod: 100000}, false, "1 0, 2 0"},
	} {
		seen := running(0, 2)
		if tt.stopped {
			seen = exited(0, 1, 5)
		}
		seen.Resources = tt.seen
		s := compute(aScene(with("a", seen), func(s *scene) {
			s.spec().Containers[0].Resources = v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
		}), v1.PodStatus{})
		cs := s.ContainerStatuses[0]
		if got := show(cs.Resources.Requests) + ", " + show(cs.Resources.Limits); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if got := show(cs.AllocatedResources); got != show(tt.requests) {
			t.Errorf("%s: allocated: got %s, want %s", tt.name, got, show(tt.requests))
		}
	}
}

// TestAnInitContainerIsShownWithWhatItWasGranted, and what it is held to while it runs, whatever is
// desired.
func TestAnInitContainerIsShownWithWhatItWasGranted(t *testing.T) {
	memory := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)} }
	seen := running(0, 2)
	seen.Resources = &pod.ContainerResources{CPUShares: 2, CPUPeriod: 100000, MemoryLimitInBytes: 16 << 20}
	s := compute(aScene(with("init", seen), granted("init", "32Mi"), func(s *scene) {
		s.spec().InitContainers, s.spec().Containers = s.spec().Containers, []v1.Container{{Name: "web"}}
		s.spec().InitContainers[0].Resources = v1.ResourceRequirements{Requests: memory("64Mi"), Limits: memory("64Mi")}
	}), v1.PodStatus{})
	cs := s.InitContainerStatuses[0]
	if a, r := cs.AllocatedResources.Memory().String(), cs.Resources.Limits.Memory().String(); a != "32Mi" || r != "16Mi" {
		t.Errorf("got %s allocated and a limit of %s, want 32Mi and 16Mi", a, r)
	}
}

// TestThePodIsShownWithWhatItHasUntilItsResizeIsDone: the limits that are in force, beside what
// is allocated.
func TestThePodIsShownWithWhatItHasUntilItsResizeIsDone(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	show := func(l v1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	s := compute(aScene(with("a", running(0, 2)), func(s *scene) {
		s.Desired.Source = pod.SourceAPIServer
		s.spec().Resources = &v1.ResourceRequirements{Requests: list("100m", "10Ki"), Limits: list("200m", "10Ki")}
		s.ActuatedPod = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m")}, Limits: list("400m", "32Mi")}
	}), v1.PodStatus{})
	if a, r := s.AllocatedResources, s.Resources; show(a) != "100m 10Ki" || show(r.Requests) != "300m 10Ki" || show(r.Limits) != "400m 32Mi" {
		t.Errorf("got %s allocated, requests of %s and limits of %s; want 100m 10Ki, 300m 10Ki, 400m 32Mi", show(a), show(r.Requests), show(r.Limits))
	}
}

// TestARunningPodOfAnApiserverIsShownWithItsCPUAndMemory, and with what it names itself. A static
// pod is shown with the sums of all resources.
func TestARunningPodOfAnApiserverIsShownWithItsCPUAndMemory(t *testing.T) {
	list := func(text ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(text); i += 2 {
			l[v1.ResourceName(text[i])] = resource.MustParse(text[i+1])
		}
		return l
	}
	for _, tt := range []struct {
		name             string
		source           pod.Source
		second           v1.ResourceRequirements
		requests, limits v1.ResourceList
	}{
		{"one of two is limited", pod.SourceAPIServer, v1.ResourceRequirements{}, list("cpu", "20m", "memory", "16Mi"), list("cpu", "100m", "memory", "32Mi")},
		{"both have a memory limit", pod.SourceAPIServer, v1.ResourceRequirements{Limits: list("memory", "1Mi"), Requests: list("memory", "1Mi")}, list("cpu", "20m", "memory", "17Mi"), list("cpu", "100m", "memory", "33Mi")},
		{"static", pod.SourceFile, v1.ResourceRequirements{}, list("cpu", "20m", "memory", "16Mi"), list("cpu", "100m", "memory", "32Mi", "ephemeral-storage", "64Mi")},
	} {
		s := compute(aScene(with("a", running(0, 2)), with("b", running(0, 2)), func(s *scene) {
			s.Desired.Source = tt.source
			s.spec().Containers[0].Resources = v1.ResourceRequirements{
				Requests: list("cpu", "20m", "memory", "16Mi"), Limits: list("cpu", "100m", "memory", "32Mi", "ephemeral-storage", "64Mi"),
			}
			s.spec().Containers[1].Resources = tt.second
		}), v1.PodStatus{})
		if r := s.Resources; !apiequality.Semantic.DeepEqual(r.Requests, tt.requests) || !apiequality.Semantic.DeepEqual(r.Limits, tt.limits) {
			t.Errorf("%s: got %v, %v; want %v, %v", tt.name, r.Requests, r.Limits, tt.requests, tt.limits)
		}
	}
}

// TestResourcesOfTheWholePodCountInitContainersAndOverhead: KEP-753's formula.
func TestResourcesOfTheWholePodCountInitContainersAndOverhead(t *testing.T) {
	cpu := func(v string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(v)}}
	}
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Name: "small", Resources: cpu("1")},
			{Name: "proxy", Resources: cpu("2"), RestartPolicy: &always},
			{Name: "large", Resources: cpu("6")},
		},
		Containers: []v1.Container{{Name: "a", Resources: cpu("3")}},
		Overhead:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
	}}
	if got, _ := podResources(p); got.Cpu().String() != "8250m" {
		t.Errorf("got %s, want 8250m: large beside proxy, and the overhead", got.Cpu())
	}
	if got, _ := podResources(withAllocated(p, map[string]v1.ResourceRequirements{"large": cpu("1")}, nil)); got.Cpu().String() != "5250m" {
		t.Errorf("large shrunk: got %s, want 5250m: proxy, a and the overhead", got.Cpu())
	}
	if p.Spec.InitContainers[2].Resources.Requests.Cpu().String() != "6" {
		t.Error("the spec was changed")
	}
}

// TestAnEndedPodOfAnApiserverIsShownWithWhatItWasShownWith: with what it ran with, or, if it never
// was seen to run, with all that it requested.
func TestAnEndedPodOfAnApiserverIsShownWithWhatItWasShownWith(t *testing.T) {
	limits := v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi"), v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	of := func(c pod.Container, previous v1.PodStatus) v1.PodStatus {
		return compute(aScene(with("a", c), func(s *scene) {
			s.Desired.Source = pod.SourceAPIServer
			s.spec().RestartPolicy = v1.RestartPolicyNever
			s.spec().Containers[0].Resources.Limits = limits
		}), previous)
	}
	for _, tt := range []struct {
		name     string
		previous v1.PodStatus
		want     int
	}{
		{"it ran", of(running(0, 2), v1.PodStatus{}), 1},
		{"nobody saw it run", v1.PodStatus{}, 2},
	} {
		s := of(exited(0, 0, 3), tt.previous)
		if s.Phase != v1.PodSucceeded || len(s.Resources.Limits) != tt.want {
			t.Errorf("%s: got %s with limits of %v, want Succeeded with %d limits", tt.name, s.Phase, s.Resources.Limits, tt.want)
		}
	}
}
