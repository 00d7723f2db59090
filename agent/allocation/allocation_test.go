package allocation_test

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent/allocation"
	"podd/internal/pod"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// wants is an apiserver's pod with one container, web, that asks for that CPU.
func wants(cpu string, generation int64) *pod.Desired {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", UID: "u1", Generation: generation}}
	p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: cpuOf(cpu)}}
	p.Spec.Containers = []v1.Container{{Name: "web", Resources: cpuOf(cpu)}}
	return &pod.Desired{Pod: p, Source: pod.SourceAPIServer}
}

func cpuOf(cpu string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
}

func scratch(limit string, medium v1.StorageMedium) v1.Volume {
	q := resource.MustParse(limit)
	return v1.Volume{Name: "scratch" + string(medium), VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: &q}}}
}

func cpu(d *pod.Desired) string { return d.Pod.Spec.Containers[0].Resources.Requests.Cpu().String() }

// had is the allocation of a pod that was granted that CPU.
func had(cpu string) allocation.Allocation {
	a, _ := allocation.Allocation{}.Propose(allocation.Proposal{Desired: wants(cpu, 1), Now: noon})
	return a
}

func TestAProposalIsAskedAbout(t *testing.T) {
	more := wants("200m", 2)
	deferred := pod.Verdict{Reason: v1.PodReasonDeferred, Message: "full"}
	asked, _ := had("100m").Propose(allocation.Proposal{Desired: more, Now: noon})
	early, _ := had("100m").Propose(allocation.Proposal{Desired: more, UsageUnknown: true, Now: noon})
	ending, _ := had("100m").Propose(allocation.Proposal{Desired: more, Terminating: true, Now: noon})
	waits, never := asked.ApplyVerdict(deferred, noon), asked.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonInfeasible}, noon)
	for name, c := range map[string]struct {
		before allocation.Allocation
		p      allocation.Proposal
		ask    bool
		want   string // granted
		waits  bool
	}{
		"the first one is what it was admitted with": {allocation.Allocation{}, allocation.Proposal{Desired: more}, false, "200m", false},
		"also early":                     {allocation.Allocation{}, allocation.Proposal{Desired: more, UsageUnknown: true}, false, "200m", false},
		"something else about the pod":   {had("100m"), allocation.Proposal{Desired: wants("100m", 2)}, false, "100m", false},
		"more":                           {had("100m"), allocation.Proposal{Desired: more}, true, "100m", false},
		"less is asked about, too":       {had("100m"), allocation.Proposal{Desired: wants("50m", 2)}, true, "100m", false},
		"more, and the pod ends":         {had("100m"), allocation.Proposal{Desired: more, Terminating: true}, false, "100m", false},
		"more, before all is known":      {had("100m"), allocation.Proposal{Desired: more, UsageUnknown: true}, false, "100m", true},
		"it ended, and is not asked":     {ending, allocation.Proposal{Desired: more, ResourcesFreed: true}, false, "100m", false},
		"still not all is known":         {early, allocation.Proposal{Desired: more, UsageUnknown: true, ResourcesFreed: true}, false, "100m", true},
		"all is known now":               {early, allocation.Proposal{Desired: more}, true, "100m", false},
		"deferred, a moment later":       {waits, allocation.Proposal{Desired: more, Now: noon.Add(29 * time.Second)}, false, "100m", true},
		"deferred, some time later":      {waits, allocation.Proposal{Desired: more, Now: noon.Add(30 * time.Second)}, true, "100m", true},
		"deferred, and there is room":    {waits, allocation.Proposal{Desired: more, Now: noon, ResourcesFreed: true}, true, "100m", true},
		"deferred, room, all unknown":    {waits, allocation.Proposal{Desired: more, Now: noon, ResourcesFreed: true, UsageUnknown: true}, false, "100m", true},
		"deferred, and then even more":   {waits, allocation.Proposal{Desired: wants("300m", 3), Now: noon}, true, "100m", true},
		"deferred, and taken back":       {waits, allocation.Proposal{Desired: wants("100m", 3), Now: noon}, false, "100m", false},
		"infeasible, whatever is freed":  {never, allocation.Proposal{Desired: more, Now: noon.Add(time.Hour), ResourcesFreed: true}, false, "100m", true},
		"infeasible, and something else": {never, allocation.Proposal{Desired: wants("150m", 3), Now: noon}, true, "100m", true},
	} {
		before := c.before
		next, ask := c.before.Propose(c.p)
		if got := cpu(next.Granted); ask != c.ask || got != c.want || next.ResizePending() != c.waits {
			t.Errorf("%s: got ask %v, granted %s, waits %v; want %v, %s, %v", name, ask, got, next.ResizePending(), c.ask, c.want, c.waits)
		}
		if !ask && next.Granted.Pod.Generation != c.p.Desired.Pod.Generation {
			t.Errorf("%s: what is granted is of generation %d, want %d", name, next.Granted.Pod.Generation, c.p.Desired.Pod.Generation)
		}
		if c.before != before || cpu(more) != "200m" {
			t.Errorf("%s: what was before is changed", name)
		}
	}
}

func TestTheNodesAnswer(t *testing.T) {
	more := wants("200m", 2)
	a, _ := had("100m").Propose(allocation.Proposal{Desired: more, Now: noon})
	granted := a.ApplyVerdict(pod.Verdict{}, noon)
	if granted.Granted != more || granted.ResizePending() || granted.Deferred() || granted.Progress == nil ||
		granted.Progress.Type != v1.PodResizeInProgress || granted.Progress.ObservedGeneration != 2 || !granted.Progress.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("it fits: got %+v", granted)
	}
	first := a.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonDeferred, Message: "full"}, noon)
	second := first.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonDeferred, Message: "fuller"}, noon.Add(time.Minute))
	if p := first.Pending; p.Reason != v1.PodReasonDeferred || p.Message != "full" || p.Type != v1.PodResizePending || p.Status != v1.ConditionTrue ||
		!first.RetryAt.Equal(noon.Add(30*time.Second)) || !first.Deferred() || first.Granted.Pod.Generation != 2 {
		t.Errorf("it does not fit: got %+v, asked again at %v", p, first.RetryAt)
	}
	if p := second.Pending; p.Message != "fuller" || !p.LastTransitionTime.Time.Equal(noon) || !second.RetryAt.Equal(noon.Add(4*time.Minute)) {
		t.Errorf("nor the second time: got %+v, asked again at %v", p, second.RetryAt)
	}
	never := second.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonInfeasible}, noon.Add(2*time.Minute))
	if p := never.Pending; p.Reason != v1.PodReasonInfeasible || !p.LastTransitionTime.Time.Equal(noon.Add(2*time.Minute)) || !never.RetryAt.IsZero() || never.Deferred() || !never.ResizePending() {
		t.Errorf("it never will: got %+v, asked again at %v", p, never.RetryAt)
	}
	preempts := a.ApplyVerdict(pod.Verdict{Preempt: []pod.UID{"victim"}}, noon)
	if preempts.Pending.Reason != v1.PodReasonDeferred {
		t.Errorf("once others have ended: got %+v", preempts.Pending)
	}
	for name, c := range map[string]struct {
		before, after allocation.Allocation
		want          bool
	}{
		"the first": {a, first, true}, "again": {first, second, false}, "for another reason": {second, never, true}, "none": {first, granted, false},
	} {
		if got := c.after.PendingChanged(c.before); got != c.want {
			t.Errorf("%s: is news: got %v", name, got)
		}
	}
	newer, _ := first.Propose(allocation.Proposal{Desired: wants("300m", 3), Now: noon})
	again := newer.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonDeferred}, noon)
	if !again.PendingChanged(newer) || !again.RetryAt.Equal(noon.Add(30*time.Second)) {
		t.Errorf("of another generation: got %+v, asked again at %v", again.Pending, again.RetryAt)
	}
}

func TestAResizeUnderWay(t *testing.T) {
	if _, news := had("100m").ResizeCompleted(); news {
		t.Error("none was under way")
	}
	a, _ := had("100m").Propose(allocation.Proposal{Desired: wants("200m", 2), Now: noon})
	a = a.ApplyVerdict(pod.Verdict{}, noon)
	failed, news := a.ResizeFailed(errors.New("no"), noon.Add(time.Second))
	if p := failed.Progress; !news || p.Reason != v1.PodReasonError || p.Message != "no" || !p.LastTransitionTime.Time.Equal(noon.Add(time.Second)) || p.ObservedGeneration != 2 {
		t.Errorf("it failed: got %+v, news %v", p, news)
	}
	again, news := failed.ResizeFailed(errors.New("no"), noon.Add(time.Minute))
	if p := again.Progress; news || !p.LastTransitionTime.Time.Equal(noon.Add(time.Second)) {
		t.Errorf("so again: got %+v, news %v", p, news)
	}
	if _, news := failed.ResizeFailed(errors.New("never"), noon); !news {
		t.Error("otherwise: no news")
	}
	// What else changes about the pod ends no resize.
	kept, _ := a.Propose(allocation.Proposal{Desired: wants("200m", 3), Now: noon})
	if kept.Progress == nil {
		t.Error("the resize is forgotten")
	}
	if done, news := a.ResizeCompleted(); !news || done.Progress != nil {
		t.Errorf("completed: got %+v", done.Progress)
	}
	waits := a.ApplyVerdict(pod.Verdict{Reason: v1.PodReasonDeferred}, noon)
	if over := waits.ResizeCanceled(); over.Pending != nil || over.Progress != nil || waits.Pending == nil {
		t.Errorf("the pod is over: got %+v, %+v", over.Pending, over.Progress)
	}
}

// TestWhatAResizeMayChange: containers of each kind, the pod, and sizes of volumes in memory.
func TestWhatAResizeMayChange(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	change := func(change func(*v1.PodSpec)) *pod.Desired {
		d := wants("100m", 1)
		d.Pod.Spec.InitContainers = append(d.Pod.Spec.InitContainers, v1.Container{Name: "mesh", RestartPolicy: &always, Resources: cpuOf("10m")})
		d.Pod.Spec.Volumes = []v1.Volume{scratch("1Mi", v1.StorageMediumMemory), scratch("1Mi", "")}
		if change != nil {
			change(&d.Pod.Spec)
		}
		return d
	}
	own := cpuOf("1")
	for name, c := range map[string]struct {
		to   *pod.Desired
		same bool
	}{
		"nothing":                        {change(nil), true},
		"another notation":               {change(func(s *v1.PodSpec) { s.Containers[0].Resources = cpuOf("0.1") }), true},
		"a container":                    {change(func(s *v1.PodSpec) { s.Containers[0].Resources = cpuOf("200m") }), false},
		"a sidecar":                      {change(func(s *v1.PodSpec) { s.InitContainers[1].Resources = cpuOf("20m") }), false},
		"an init container that ends":    {change(func(s *v1.PodSpec) { s.InitContainers[0].Resources = cpuOf("1") }), false},
		"a size in memory":               {change(func(s *v1.PodSpec) { s.Volumes[0] = scratch("2Mi", v1.StorageMediumMemory) }), false},
		"its other notation":             {change(func(s *v1.PodSpec) { s.Volumes[0] = scratch("1024Ki", v1.StorageMediumMemory) }), true},
		"a size on disk":                 {change(func(s *v1.PodSpec) { s.Volumes[1] = scratch("2Mi", "") }), true},
		"the pod":                        {change(func(s *v1.PodSpec) { s.Resources = &own }), false},
		"a container that was not there": {change(func(s *v1.PodSpec) { s.Containers = append(s.Containers, v1.Container{Name: "new"}) }), true},
	} {
		granted := allocation.ResourcesOf(change(nil).Pod)
		if got := granted.Match(c.to.Pod); got != c.same {
			t.Errorf("%s: got %v", name, got)
		}
		if out := granted.ApplyTo(c.to); !granted.Match(out.Pod) || !c.same && granted.Match(c.to.Pod) {
			t.Errorf("%s: what was granted is not in %+v, or is in the other", name, out.Pod.Spec)
		}
	}
}
