package status

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

// TestContainerStates: how one container is shown.
func TestContainerStates(t *testing.T) {
	oom := exited(0, 137, 7)
	oom.Reason, oom.Message = "OOMKilled", "out of memory"
	cannot := exited(0, 127, 7)
	cannot.Reason = "ContainerCannotRun"
	tests := []struct {
		name        string
		opts        []option
		state, last string
		restarts    int32
	}{
		{"not made", []option{with("a")}, "waiting ContainerCreating", "", 0},
		{"not made, init first", []option{withInit("i"), with("a")}, "waiting PodInitializing", "", 0},
		{"pull fails", []option{with("a"), waits("a", "ErrImagePull")}, "waiting ErrImagePull", "", 0},
		{"create fails again", []option{with("a", created(0)), waits("a", "RunContainerError")}, "waiting RunContainerError", "", 0},
		{"running", []option{with("a", running(0, 2))}, "running", "", 0},
		{"running hides a stale reason", []option{with("a", running(0, 2)), waits("a", "ErrImagePull")}, "running", "", 0},
		{"completed", []option{policy(never), with("a", exited(0, 0, 7))}, "terminated Completed 0", "", 0},
		{"oom", []option{policy(never), with("a", oom)}, "terminated OOMKilled 137", "", 0},
		{"cannot run", []option{policy(never), with("a", cannot)}, "terminated ContainerCannotRun 127", "", 0},
		{"crash loop", []option{with("a", exited(4, 1, 7)), waits("a", "CrashLoopBackOff")}, "waiting CrashLoopBackOff", "terminated Error 1", 4},
		{"restarted", []option{with("a", running(1, 8), exited(0, 1, 7))}, "running", "terminated Error 1", 1},
		{"about to restart", []option{with("a", exited(0, 1, 7)), waits("a", "ContainerCreating")}, "terminated Error 1", "", 0},
		{"terminating ends the back-off", []option{phase(pod.PhaseTerminating), with("a", exited(4, 1, 7)), waits("a", "CrashLoopBackOff")}, "terminated Error 1", "", 4},
	}
	for _, tt := range tests {
		got := compute(aScene(tt.opts...), v1.PodStatus{}).ContainerStatuses[0]
		if s := describe(got.State); s != tt.state {
			t.Errorf("%s: state: got %q, want %q", tt.name, s, tt.state)
		}
		if s := describe(got.LastTerminationState); s != tt.last {
			t.Errorf("%s: last state: got %q, want %q", tt.name, s, tt.last)
		}
		if got.RestartCount != tt.restarts {
			t.Errorf("%s: restarts: got %d, want %d", tt.name, got.RestartCount, tt.restarts)
		}
	}
}

func describe(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	case s.Terminated != nil:
		return strings.TrimSpace("terminated " + s.Terminated.Reason + " " + resource.NewQuantity(int64(s.Terminated.ExitCode), resource.DecimalSI).String())
	}
	return ""
}

func TestContainerLostByTheRuntime(t *testing.T) {
	before := compute(aScene(with("a", running(2, 2))), v1.PodStatus{})
	gone := compute(aScene(with("a")), before)
	for range 3 { // a status that is computed again must not count again
		gone = compute(aScene(with("a")), gone)
	}
	cs := gone.ContainerStatuses[0]
	if cs.RestartCount != 3 || describe(cs.LastTerminationState) != "terminated ContainerStatusUnknown 137" || describe(cs.State) != "waiting ContainerCreating" {
		t.Errorf("record gone: got %d restarts, %q after %q", cs.RestartCount, describe(cs.State), describe(cs.LastTerminationState))
	}
	if gone.Phase != v1.PodRunning {
		t.Errorf("record gone: phase: got %s, want Running", gone.Phase)
	}

	odd := compute(aScene(with("a", unknown(2))), before)
	for range 3 {
		odd = compute(aScene(with("a", unknown(2))), odd)
	}
	cs = odd.ContainerStatuses[0]
	if cs.RestartCount != 3 || describe(cs.State) != "terminated ContainerStatusUnknown 137" {
		t.Errorf("state unknown: got %d restarts, %q; want 3, ContainerStatusUnknown", cs.RestartCount, describe(cs.State))
	}
}

// TestRestartOfPoddChangesNothing computes each scene once with a history and
// once, later, without one.
func TestRestartOfPoddChangesNothing(t *testing.T) {
	histories := map[string][][]option{
		"running": {
			{noSandbox(), with("a"), lookAt(0)},
			{with("a"), lookAt(1)},
			{with("a", created(0)), lookAt(2)},
			{with("a", running(0, 2)), lookAt(2)},
		},
		"restarted": {
			{with("a", running(0, 2)), lookAt(2)},
			{with("a", exited(0, 1, 7)), lookAt(7)},
			{with("a", running(1, 8), exited(0, 1, 7)), lookAt(8)},
		},
		"completed": {
			{policy(never), with("a", running(0, 2)), lookAt(2)},
			{policy(never), with("a", exited(0, 0, 7)), lookAt(7)},
		},
		"init": {
			{withInit("i", running(0, 2)), with("a"), lookAt(2)},
			{withInit("i", exited(0, 0, 4)), with("a"), lookAt(4)},
			{withInit("i", exited(0, 0, 4)), with("a", running(0, 5)), lookAt(5)},
		},
		"init crash loop": {
			{withInit("i"), with("a"), lookAt(1)},
			{withInit("i", running(0, 2)), with("a"), lookAt(2)},
			{withInit("i", exited(0, 1, 4)), with("a"), lookAt(4)},
			{withInit("i", exited(1, 1, 6), exited(0, 1, 4)), with("a"), waits("i", "CrashLoopBackOff"), lookAt(6)},
		},
		"sidecar crash loop": {
			{withSidecar("s"), with("a"), lookAt(1)},
			{withSidecar("s", running(0, 2)), with("a"), lookAt(2)},
			{withSidecar("s", running(0, 2)), with("a", running(0, 2)), lookAt(3)},
			{withSidecar("s", exited(0, 1, 5)), with("a", running(0, 2)), waits("s", "CrashLoopBackOff"), lookAt(5)},
		},
		"crash loop": {
			{with("a", running(0, 2)), lookAt(2)},
			{with("a", exited(0, 1, 7)), waits("a", "CrashLoopBackOff"), lookAt(7)},
		},
	}
	for name, steps := range histories {
		var with v1.PodStatus
		for _, opts := range steps {
			with = compute(aScene(opts...), with)
		}
		last := append(append([]option{}, steps[len(steps)-1]...), lookAt(5000))
		fresh := compute(aScene(last...), v1.PodStatus{})
		if d := cmp.Diff(with, fresh); d != "" {
			t.Errorf("%s: a status computed anew differs (-before restart +after)\n%s", name, d)
		}
		again := compute(aScene(last...), with)
		if d := cmp.Diff(with, again); d != "" {
			t.Errorf("%s: a second look changed the status (-first +second)\n%s", name, d)
		}
	}
}

func TestAddresses(t *testing.T) {
	six := func(s *scene) { s.Observed.Sandboxes[0].IPs = []string{"fd00::5", "10.88.0.5", "10.88.0.6", "rubbish"} }
	tests := []struct {
		name    string
		options Options
		opts    []option
		ip, ips string
	}{
		{"one", Options{}, nil, "10.88.0.5", "10.88.0.5"},
		{"dual, v4 first by default", Options{}, []option{six}, "10.88.0.5", "10.88.0.5 fd00::5"},
		{"dual, v6 node", Options{HostIPs: []string{"fd01::1"}}, []option{six}, "fd00::5", "fd00::5 10.88.0.5"},
		{"host network", Options{HostIPs: []string{"192.0.2.7"}}, []option{hostNetwork()}, "192.0.2.7", "192.0.2.7"},
	}
	for _, tt := range tests {
		s := tt.options.Compute(aScene(append(tt.opts, with("a", running(0, 2)))...), v1.PodStatus{})
		var ips []string
		for _, ip := range s.PodIPs {
			ips = append(ips, ip.IP)
		}
		if s.PodIP != tt.ip || strings.Join(ips, " ") != tt.ips {
			t.Errorf("%s: got %s of %v, want %s of %s", tt.name, s.PodIP, ips, tt.ip, tt.ips)
		}
	}
	before := compute(aScene(policy(never), with("a", running(0, 2))), v1.PodStatus{})
	after := compute(aScene(policy(never), noSandbox(), with("a", exited(0, 0, 7))), before)
	if after.PodIP != "10.88.0.5" {
		t.Errorf("completed pod without a sandbox: got IP %q, want the one it had", after.PodIP)
	}
}

func hostNetwork() option {
	return func(s *scene) {
		s.spec().HostNetwork = true
		s.Observed.Sandboxes[0].IPs = nil
		s.Observed.Sandboxes[0].HostNetwork = true
	}
}

func TestStartedAndReadyFollowTheProbes(t *testing.T) {
	probe := &v1.Probe{}
	probed := func(startup, ready bool, r pod.Probes) option {
		return func(s *scene) {
			with("a", running(0, 2))(s)
			if startup {
				s.spec().Containers[0].StartupProbe = probe
			}
			if ready {
				s.spec().Containers[0].ReadinessProbe = probe
			}
			r.ContainerID = "a-0"
			s.Probes = pod.ProbeResults{"a": r}
		}
	}
	const ok, no, not = pod.ProbeSucceeded, pod.ProbeFailed, pod.ProbeUnknown
	tests := []struct {
		name           string
		opt            option
		started, ready bool
	}{
		{"no probes", probed(false, false, pod.Probes{}), true, true},
		{"startup unknown", probed(true, true, pod.Probes{}), false, false},
		{"startup failed", probed(true, true, pod.Probes{Startup: no, Ready: ok}), false, false},
		{"startup done, readiness unknown", probed(true, true, pod.Probes{Startup: ok, Ready: not}), true, false},
		{"readiness failed", probed(false, true, pod.Probes{Ready: no}), true, false},
		{"both done", probed(true, true, pod.Probes{Startup: ok, Ready: ok}), true, true},
	}
	for _, tt := range tests {
		got := compute(aScene(tt.opt), v1.PodStatus{}).ContainerStatuses[0]
		if *got.Started != tt.started || got.Ready != tt.ready {
			t.Errorf("%s: got started %v ready %v, want %v %v", tt.name, *got.Started, got.Ready, tt.started, tt.ready)
		}
	}
	// Upstream #100277: a restart of the agent, which forgets results, must not
	// turn a ready pod unready.
	before := compute(aScene(probed(true, true, pod.Probes{Startup: ok, Ready: ok})), v1.PodStatus{})
	after := compute(aScene(probed(true, true, pod.Probes{})), before)
	if !after.ContainerStatuses[0].Ready || !*after.ContainerStatuses[0].Started {
		t.Error("results forgotten: the container turned unready")
	}
}

func TestQOSClass(t *testing.T) {
	rl := func(cpu, mem string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			l[v1.ResourceMemory] = resource.MustParse(mem)
		}
		return l
	}
	c := func(req, lim v1.ResourceList) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: req, Limits: lim}}
	}
	full := c(rl("1", "1Gi"), rl("1", "1Gi"))
	none := c(nil, nil)
	pods := func(cs ...v1.Container) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Containers: cs}} }
	level := pods(none)
	level.Spec.Resources = &v1.ResourceRequirements{Requests: rl("1", "1Gi"), Limits: rl("1", "1Gi")}
	initOnly := pods(full)
	initOnly.Spec.InitContainers = []v1.Container{none}
	tests := []struct {
		name string
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		{"nothing", pods(none, none), v1.PodQOSBestEffort},
		{"zero counts as nothing", pods(c(rl("0", ""), nil)), v1.PodQOSBestEffort},
		{"other resources count as nothing", pods(c(v1.ResourceList{"example.com/gpu": resource.MustParse("1")}, nil)), v1.PodQOSBestEffort},
		{"all limited", pods(full, full), v1.PodQOSGuaranteed},
		{"same amount, other unit", pods(c(rl("1000m", "1024Mi"), rl("1", "1Gi"))), v1.PodQOSGuaranteed},
		{"one without limits", pods(full, none), v1.PodQOSBurstable},
		{"init without limits", initOnly, v1.PodQOSBurstable},
		{"less requested", pods(c(rl("500m", "1Gi"), rl("1", "1Gi"))), v1.PodQOSBurstable},
		{"cpu only", pods(c(rl("1", ""), rl("1", ""))), v1.PodQOSBurstable},
		{"pod level decides", level, v1.PodQOSGuaranteed},
	}
	for _, tt := range tests {
		if got := pod.QOSClass(tt.pod); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestTerminationMessagesShareTwelveKiB(t *testing.T) {
	long := exited(0, 1, 5)
	long.Message = strings.Repeat("ä", 4096)
	s := compute(aScene(policy(never), with("a", long), with("b", long), with("c", long), with("d", long)), v1.PodStatus{})
	for _, cs := range s.ContainerStatuses {
		m := cs.State.Terminated.Message
		if len(m) > 3072 || len(m) < 3070 || !strings.HasSuffix(m, "ä") {
			t.Errorf("container %s: got %d bytes ending in %q, want about 3072 and whole characters", cs.Name, len(m), m[len(m)-2:])
		}
	}
}

func TestResourcesOfTheWholePod(t *testing.T) {
	quantities := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	show := func(l v1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "a", Resources: v1.ResourceRequirements{Requests: quantities("100m", "16Mi"), Limits: quantities("1", "64Mi")}},
		{Name: "b", Resources: v1.ResourceRequirements{Requests: quantities("", "16Mi"), Limits: quantities("", "64Mi")}},
	}}}
	allocated, all := podResources(p)
	if got := show(allocated); got != "100m 32Mi" {
		t.Errorf("allocated: got %s, want 100m 32Mi", got)
	}
	if got := show(all.Limits); got != "1 128Mi" {
		t.Errorf("limits: got %s, want 1 128Mi: what the containers that have limits may use", got)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: quantities("2", "")}
	if _, all := podResources(p); show(all.Limits) != "2 128Mi" || show(all.Requests) != "100m 32Mi" {
		t.Errorf("with a limit of the pod's own: got %s, %s", show(all.Limits), show(all.Requests))
	}
	// A resize that waits: what is desired is not what was granted.
	granted := map[string]v1.ResourceRequirements{"a": p.Spec.Containers[0].Resources}
	if allocated, all := podResources(withAllocated(p, granted, &v1.ResourceRequirements{Requests: quantities("500m", "")})); show(all.Limits) != "1 128Mi" || show(allocated) != "500m 32Mi" {
		t.Errorf("a resize of the pod that waits: got %s, allocated %s", show(all.Limits), show(allocated))
	}
}

func TestUserOfAContainer(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	s := compute(pod.Report{Desired: &pod.Desired{Pod: p}, Observed: pod.Observed{Containers: []pod.Container{{
		ID: "1", Name: "app", State: pod.ContainerRunning, User: &pod.User{UID: 7, GID: 8, SupplementalGroups: []int64{8, 9}},
	}}}}, v1.PodStatus{})
	u := s.ContainerStatuses[0].User
	if u == nil || u.Linux.UID != 7 || u.Linux.GID != 8 || !slices.Equal(u.Linux.SupplementalGroups, []int64{8, 9}) {
		t.Errorf("got %+v, want what the runtime said", u)
	}
}

func TestBackOffIsShownUntilTheSuccessorRuns(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	dead := pod.Container{ID: "1", Name: "app", State: pod.ContainerExited, ExitCode: 1, Reason: "Error"}
	report := func(phase pod.Phase, waiting map[string]pod.Waiting, seen ...pod.Container) pod.Report {
		return pod.Report{Desired: &pod.Desired{Pod: p}, Phase: phase, Waiting: waiting, Observed: pod.Observed{Containers: seen}}
	}
	backOff := compute(report(pod.PhaseRunning, map[string]pod.Waiting{"app": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}}, dead), v1.PodStatus{})
	over := compute(report(pod.PhaseRunning, nil, dead), backOff)
	if diff := cmp.Diff(backOff.ContainerStatuses, over.ContainerStatuses); diff != "" {
		t.Errorf("the back-off is over (-before +after):\n%s", diff)
	}
	next := pod.Container{ID: "2", Name: "app", State: pod.ContainerExited, RestartCount: 1, ExitCode: 2, Reason: "Error"}
	if s := compute(report(pod.PhaseRunning, nil, next, dead), over).ContainerStatuses[0]; s.State.Terminated == nil || s.State.Terminated.ExitCode != 2 {
		t.Errorf("the successor ended: got %+v", s.State)
	}
	if s := compute(report(pod.PhaseTerminating, nil, dead), over).ContainerStatuses[0]; s.State.Terminated == nil {
		t.Errorf("the pod is stopped: got %+v", s.State)
	}
}

// What a runtime cannot do is not shown as done.
func TestMountsAreShownAsTheyAre(t *testing.T) {
	enabled, disabled, ifPossible := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible
	for _, tc := range []struct {
		mount v1.VolumeMount
		node  bool // can do it
		want  *v1.RecursiveReadOnlyMode
	}{
		{v1.VolumeMount{}, true, nil},
		{v1.VolumeMount{ReadOnly: true}, true, &disabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &disabled}, true, &disabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled}, true, &enabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &ifPossible}, true, &enabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &ifPossible}, false, &disabled},
	} {
		tc.mount.Name, tc.mount.MountPath = "v", "/v"
		r := aScene(with("a", running(0, 2)), func(s *scene) { s.spec().Containers[0].VolumeMounts = []v1.VolumeMount{tc.mount} })
		got := Options{RecursiveReadOnly: tc.node}.Compute(r, v1.PodStatus{}).ContainerStatuses[0].VolumeMounts
		want := []v1.VolumeMountStatus{{Name: "v", MountPath: "/v", ReadOnly: tc.mount.ReadOnly, RecursiveReadOnly: tc.want}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%+v, node can: %v: (-want +got)\n%s", tc.mount, tc.node, d)
		}
	}
}

// A container that a person added to look inside has a status, and no say in the
// pod's.
func TestEphemeralContainersHaveAStatus(t *testing.T) {
	s := compute(aScene(with("a", running(0, 2)), func(s *scene) {
		s.spec().EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look", Image: "i"}}}
		s.saw("look", []pod.Container{exited(0, 1, 5)})
	}), v1.PodStatus{})
	if len(s.EphemeralContainerStatuses) != 1 || s.EphemeralContainerStatuses[0].State.Terminated == nil || s.Phase != v1.PodRunning {
		t.Errorf("got %s and %+v, want Running, and the end of look", s.Phase, s.EphemeralContainerStatuses)
	}
}

// The image is the manifest's where the runtime does not name it, and the
// runtime's where it does.
func TestTheImageOfAContainer(t *testing.T) {
	for _, tc := range [][2]string{{"", "localhost/podd/a:1"}, {"docker.io/library/a:1", "docker.io/library/a:1"}} {
		r := aScene(with("a", running(0, 2)))
		r.Observed.Containers[0].Image = tc[0]
		if got := compute(r, v1.PodStatus{}).ContainerStatuses[0].Image; got != tc[1] {
			t.Errorf("the runtime says %q: got %q, want %q", tc[0], got, tc[1])
		}
	}
}

// Regular containers are listed by name, init containers in their order.
func TestTheOrderOfStatuses(t *testing.T) {
	s := compute(aScene(withInit("z", exited(0, 0, 2)), withInit("y", exited(0, 0, 3)), with("b", running(0, 4)), with("a", running(0, 4))), v1.PodStatus{})
	got := ""
	for _, cs := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		got += cs.Name
	}
	if got != "zyab" {
		t.Errorf("got %s, want zyab", got)
	}
}

// A pod with a container of which the runtime knows no end is not done while that
// may still run, and is once the node has stopped all of it.
func TestNoEndWhileAContainerMayRun(t *testing.T) {
	scene := func(p pod.Phase) pod.Report {
		r := aScene(policy(never), phase(p), with("a", unknown(0)), with("b", exited(0, 0, 5)))
		r.Failed, r.Reason = true, "DeadlineExceeded"
		return r
	}
	before := compute(aScene(policy(never), with("a", running(0, 2)), with("b", running(0, 2))), v1.PodStatus{})
	for p, want := range map[pod.Phase]v1.PodPhase{
		pod.PhaseRunning: v1.PodRunning, pod.PhaseTerminating: v1.PodRunning, pod.PhaseTerminated: v1.PodFailed,
	} {
		if got := compute(scene(p), before); got.Phase != want {
			t.Errorf("in phase %v: got %s, want %s", p, got.Phase, want)
		}
	}
	if got := compute(scene(pod.PhaseRunning), v1.PodStatus{}); got.Phase == v1.PodFailed {
		t.Errorf("with no status before: got %s, while a container may run", got.Phase)
	}
}

// A quota or shares of the least that there is stand for anything below, too.
func TestResourcesOfARunningContainer(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, tc := range map[string]struct {
		runtime       pod.ContainerResources
		limit, memory string // got
		request       string
	}{
		"nothing told":     {pod.ContainerResources{}, "500m", "64Mi", "100m"},
		"another limit":    {pod.ContainerResources{CPUPeriod: 100_000, CPUQuota: 20_000, MemoryLimitInBytes: 1 << 20, CPUShares: 512}, "200m", "1Mi", "500m"},
		"no quota":         {pod.ContainerResources{CPUPeriod: 100_000, CPUQuota: -1}, "500m", "64Mi", "100m"},
		"a quota of zero":  {pod.ContainerResources{CPUPeriod: 100_000}, "500m", "64Mi", "100m"},
		"the least shares": {pod.ContainerResources{CPUShares: 2}, "500m", "64Mi", "2m"},
		"too few shares":   {pod.ContainerResources{CPUShares: 1}, "500m", "64Mi", "100m"},
	} {
		r := aScene(with("a", running(0, 2)), func(s *scene) {
			s.spec().Containers[0].Resources = v1.ResourceRequirements{Limits: list("500m", "64Mi"), Requests: list("100m", "64Mi")}
			s.Observed.Containers[0].Resources = &tc.runtime
		})
		got := compute(r, v1.PodStatus{}).ContainerStatuses[0].Resources
		if l, m, q := got.Limits.Cpu().String(), got.Limits.Memory().String(), got.Requests.Cpu().String(); l != tc.limit || m != tc.memory || q != tc.request {
			t.Errorf("%s: got limits %s, %s and a request of %s, want %s, %s and %s", name, l, m, q, tc.limit, tc.memory, tc.request)
		}
	}
	least := aScene(with("a", running(0, 2)), func(s *scene) {
		s.spec().Containers[0].Resources = v1.ResourceRequirements{Limits: list("5m", "1Mi"), Requests: list("1m", "1Mi")}
		s.Observed.Containers[0].Resources = &pod.ContainerResources{CPUPeriod: 100_000, CPUQuota: 1000, CPUShares: 2}
	})
	if got := compute(least, v1.PodStatus{}).ContainerStatuses[0].Resources; got.Limits.Cpu().String() != "5m" || got.Requests.Cpu().String() != "1m" {
		t.Errorf("below the least: got %v, want what was asked for", got)
	}
}

// Devices are shown of the containers that go on, not of init containers, as the kubelet does.
func TestTheHealthOfDevicesIsShown(t *testing.T) {
	r := aScene(withInit("i", exited(0, 0, 3)), with("a", running(0, 5)), with("b", running(0, 5)))
	health := []v1.ResourceStatus{{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "x", Health: v1.ResourceHealthStatusUnhealthy}}}}
	r.Devices = map[string][]v1.ResourceStatus{"i": health, "a": health}
	s := compute(r, v1.PodStatus{})
	if got := s.ContainerStatuses[0].AllocatedResourcesStatus; cmp.Diff(health, got) != "" {
		t.Errorf("got %v", got)
	}
	if s.ContainerStatuses[1].AllocatedResourcesStatus != nil || s.InitContainerStatuses[0].AllocatedResourcesStatus != nil {
		t.Errorf("got %+v", s)
	}
}
