package status

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// TestPhaseTable computes the phase of every combination of what an init
// container, a sidecar and a regular one can be in, under every restart policy,
// and compares it with a file that was read against the kubelet's getPhase.
func TestPhaseTable(t *testing.T) {
	states := []struct {
		word string
		seen []pod.Container
	}{
		{"absent", nil}, {"created", []pod.Container{created(0)}}, {"running", []pod.Container{running(0, 2)}},
		{"exit0", []pod.Container{exited(0, 0, 5)}}, {"exit1", []pod.Container{exited(0, 1, 5)}},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-8s %-8s %-8s %-10s %-10s %s\n", "init", "sidecar", "main", "Always", "OnFailure", "Never")
	for _, i := range states {
		for _, s := range states {
			for _, m := range states {
				fmt.Fprintf(&table, "%-8s %-8s %-8s", i.word, s.word, m.word)
				for _, p := range []v1.RestartPolicy{always, onFailure, never} {
					got := compute(aScene(policy(p), withInit("i", i.seen...), withSidecar("s", s.seen...), with("m", m.seen...)), v1.PodStatus{})
					fmt.Fprintf(&table, " %-10s", got.Phase)
					anyRuns := slices.Contains([]string{i.word, s.word, m.word}, "running")
					switch {
					case pod.IsPhaseTerminal(got.Phase) && anyRuns:
						t.Errorf("%s %s %s under %s: %s although a container runs", i.word, s.word, m.word, p, got.Phase)
					case got.Phase == v1.PodSucceeded && (m.word != "exit0" || p == always):
						t.Errorf("%s %s %s under %s: Succeeded", i.word, s.word, m.word, p)
					case got.Phase == v1.PodFailed && i.word != "exit1" && m.word != "exit1":
						t.Errorf("%s %s %s under %s: Failed, and nothing but a sidecar may have", i.word, s.word, m.word, p)
					}
				}
				table.WriteString("\n")
			}
		}
	}
	lines := strings.Split(table.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	compareGolden(t, "testdata/phases.txt", strings.Join(lines, "\n"))
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s: (-want +got)\n%s", file, d)
	}
}

func started(yes bool, name string) option {
	return func(s *scene) {
		result := pod.ProbeFailed
		if yes {
			result = pod.ProbeSucceeded
		}
		for i := range s.spec().InitContainers {
			if s.spec().InitContainers[i].Name == name {
				s.spec().InitContainers[i].StartupProbe = &v1.Probe{}
			}
		}
		for i := range s.spec().Containers {
			if s.spec().Containers[i].Name == name {
				s.spec().Containers[i].StartupProbe = &v1.Probe{}
			}
		}
		if s.Probes == nil {
			s.Probes = pod.ProbeResults{}
		}
		if latest := s.Observed.LatestContainer(name); latest != nil {
			s.Probes[name] = pod.Probes{ContainerID: latest.ID, Startup: result}
		}
	}
}

// inSandbox moves what the runtime has of a container into another sandbox.
func inSandbox(id, name string) option {
	return func(s *scene) {
		for i := range s.Observed.Containers {
			if s.Observed.Containers[i].Name == name {
				s.Observed.Containers[i].SandboxID = id
			}
		}
	}
}

// TestPhaseWithSidecars is upstream's list of cases, in the words of a report.
func TestPhaseWithSidecars(t *testing.T) {
	tests := []struct {
		name          string
		opts          []option
		always, never v1.PodPhase
	}{
		{"sidecar not started yet", []option{withSidecar("s", running(0, 2)), with("a"), started(false, "s")}, v1.PodPending, v1.PodPending},
		{"one of two main containers runs", []option{withSidecar("s", running(0, 2)), with("a", running(0, 3)), with("b")}, v1.PodPending, v1.PodPending},
		{"restarting sidecar beside running ones", []option{withSidecar("s", running(1, 9)), with("a", running(0, 3)), started(false, "s")}, v1.PodRunning, v1.PodRunning},
		{"sidecar backs off, main runs", []option{withSidecar("s", exited(2, 1, 9)), waits("s", "CrashLoopBackOff"), with("a", running(0, 3))}, v1.PodRunning, v1.PodRunning},
		{"sidecar backs off, main succeeded", []option{withSidecar("s", exited(2, 1, 9)), waits("s", "CrashLoopBackOff"), with("a", exited(0, 0, 10))}, v1.PodRunning, v1.PodSucceeded},
		{"sidecar failed, main succeeded", []option{withSidecar("s", exited(0, 1, 9)), with("a", exited(0, 0, 10))}, v1.PodRunning, v1.PodSucceeded},
		{"sidecar runs again, main succeeded", []option{withSidecar("s", running(1, 9)), with("a", exited(0, 0, 10))}, v1.PodRunning, v1.PodRunning},
		{"initialized anew in a new sandbox", []option{withSidecar("s", running(1, 9)), with("a", exited(0, 137, 8)), inSandbox("s0", "a"), started(false, "s")}, v1.PodPending, v1.PodPending},
	}
	for _, tt := range tests {
		for p, want := range map[v1.RestartPolicy]v1.PodPhase{always: tt.always, never: tt.never} {
			if got := compute(aScene(append([]option{policy(p)}, tt.opts...)...), v1.PodStatus{}); got.Phase != want {
				t.Errorf("%s under %s: got %s, want %s", tt.name, p, got.Phase, want)
			}
		}
	}
}

func ownPolicy(name string, p v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) option {
	return func(s *scene) {
		for _, all := range [][]v1.Container{s.spec().InitContainers, s.spec().Containers} {
			for i := range all {
				if all[i].Name == name {
					all[i].RestartPolicy, all[i].RestartPolicyRules = &p, rules
				}
			}
		}
	}
}

func on(action v1.ContainerRestartRuleAction, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}}
}

// TestPhaseFollowsTheContainersOwnPolicy: KEP-5307.
func TestPhaseFollowsTheContainersOwnPolicy(t *testing.T) {
	const no, yes, onFail = v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure
	restart := on(v1.ContainerRestartRuleActionRestart, 42)
	tests := []struct {
		name string
		pod  v1.RestartPolicy
		opts []option
		want v1.PodPhase
	}{
		{"Never in an Always pod, failed", always, []option{with("a", exited(0, 1, 5)), ownPolicy("a", no)}, v1.PodFailed},
		{"Never in an Always pod, done", always, []option{with("a", exited(0, 0, 5)), ownPolicy("a", no)}, v1.PodSucceeded},
		{"Always in a Never pod", never, []option{with("a", exited(0, 1, 5)), ownPolicy("a", yes)}, v1.PodRunning},
		{"OnFailure in a Never pod, failed", never, []option{with("a", exited(0, 1, 5)), ownPolicy("a", onFail)}, v1.PodRunning},
		{"OnFailure in a Never pod, done", never, []option{with("a", exited(0, 0, 5)), ownPolicy("a", onFail)}, v1.PodSucceeded},
		{"rule for its exit code", never, []option{with("a", exited(0, 42, 5)), ownPolicy("a", no, restart)}, v1.PodRunning},
		{"rule for another exit code", never, []option{with("a", exited(0, 41, 5)), ownPolicy("a", no, restart)}, v1.PodFailed},
		{"one is to run again, one is done", never, []option{with("a", exited(0, 42, 5)), ownPolicy("a", no, restart), with("b", exited(0, 0, 5))}, v1.PodRunning},
		{"init Never in an Always pod, failed", always, []option{withInit("i", exited(0, 1, 5)), ownPolicy("i", no), with("a")}, v1.PodFailed},
		{"init with a rule in a Never pod", never, []option{withInit("i", exited(0, 42, 5)), ownPolicy("i", no, restart), with("a")}, v1.PodPending},
	}
	for _, tt := range tests {
		if got := compute(aScene(append([]option{policy(tt.pod)}, tt.opts...)...), v1.PodStatus{}); got.Phase != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got.Phase, tt.want)
		}
	}
}

// TestRestartOfAllContainers follows a pod through it, as a kubelet 1.36.3 was
// seen to show it.
func TestRestartOfAllContainers(t *testing.T) {
	restarting := func(s *scene) {
		s.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(12))}}
	}
	rule := ownPolicy("b", v1.ContainerRestartPolicyNever, on(v1.ContainerRestartRuleActionRestartAllContainers, 42))
	var s v1.PodStatus
	for _, step := range []struct {
		name string
		opts []option
		want string
	}{
		{"up", []option{withInit("i", exited(0, 0, 2)), with("a", running(0, 3)), with("b", running(0, 3))},
			"Running False Initialized=True | i terminated Completed 0 x0 | a running x0 | b running x0"},
		{"b asks for it", []option{withInit("i", exited(0, 0, 2)), with("a", running(0, 3)), with("b", exited(0, 42, 12)), restarting},
			"Running True RestartAllContainersStarted container exited with restart policy rule Initialized=True | i terminated Completed 0 x0 | a running x0 | b terminated Error 42 x0"},
		{"a is stopped", []option{withInit("i", exited(0, 0, 2)), with("a", exited(0, 137, 13)), with("b", exited(0, 42, 12)), restarting},
			"Running True RestartAllContainersStarted container exited with restart policy rule Initialized=True | i terminated Completed 0 x0 | a terminated Error 137 x0 | b terminated Error 42 x0"},
		{"all are removed", []option{withInit("i"), with("a"), with("b"), waits("i", "PodInitializing"), waits("a", "PodInitializing")},
			"Running False Initialized=True | i waiting RestartingAllContainers after RestartingAllContainers 137 x1 | a waiting RestartingAllContainers after RestartingAllContainers 137 x1 | b waiting RestartingAllContainers after RestartingAllContainers 137 x1"},
		{"and once more", []option{withInit("i"), with("a"), with("b")},
			"Running False Initialized=True | i waiting RestartingAllContainers after RestartingAllContainers 137 x1 | a waiting RestartingAllContainers after RestartingAllContainers 137 x1 | b waiting RestartingAllContainers after RestartingAllContainers 137 x1"},
		{"from the start", []option{withInit("i", running(1, 14)), with("a"), with("b")},
			"Pending False Initialized=True | i running after RestartingAllContainers 137 x1 | a waiting PodInitializing after RestartingAllContainers 137 x1 | b waiting PodInitializing after RestartingAllContainers 137 x1"},
		{"up again", []option{withInit("i", exited(1, 0, 15)), with("a", running(1, 16)), with("b", running(1, 16))},
			"Running False Initialized=True | i terminated Completed 0 after RestartingAllContainers 137 x1 | a running after RestartingAllContainers 137 x1 | b running after RestartingAllContainers 137 x1"},
	} {
		s = compute(aScene(append([]option{policy(never)}, append(step.opts, rule)...)...), s)
		got := []string{strings.Join([]string{string(s.Phase), word(s, v1.AllContainersRestarting), "Initialized=" + word(s, v1.PodInitialized)}, " ")}
		for _, cs := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
			line := cs.Name + " " + describe(cs.State)
			if last := describe(cs.LastTerminationState); last != "" {
				line += strings.Replace(last, "terminated", " after", 1)
			}
			got = append(got, fmt.Sprintf("%s x%d", line, cs.RestartCount))
		}
		if d := cmp.Diff(step.want, strings.Join(got, " | ")); d != "" {
			t.Errorf("%s: (-want +got)\n%s", step.name, d)
		}
	}
}

// An apiserver takes the end of a container that its policy does not restart for the last one,
// and refuses each later status in which it runs.
func TestAContainerThatIsRestartedAgainstItsPolicyIsNeverShownAsTerminated(t *testing.T) {
	followed := func(id string) option { return func(s *scene) { s.WillRestart = map[string]bool{id: true} } }
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int32
		want   string
	}{
		{"never", v1.RestartPolicyNever, 137, "running"},
		{"on failure, without one", v1.RestartPolicyOnFailure, 0, "running"},
		{"on failure", v1.RestartPolicyOnFailure, 137, "terminated Error 137"},
		{"always", v1.RestartPolicyAlways, 0, "terminated Completed 0"},
	} {
		up := compute(aScene(policy(tt.policy), with("a", running(0, 3))), v1.PodStatus{})
		stopped := compute(aScene(policy(tt.policy), with("a", exited(0, tt.code, 12)), followed("a-0")), up)
		if got := describe(stopped.ContainerStatuses[0].State); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if tt.want != "running" {
			continue
		}
		if c := stopped.ContainerStatuses[0]; stopped.Phase != v1.PodRunning || c.RestartCount != 0 {
			t.Errorf("%s: got %s and %d restarts", tt.name, stopped.Phase, c.RestartCount)
		}
		waiting := compute(aScene(policy(tt.policy), with("a", exited(0, tt.code, 12)), followed("a-0"), waits("a", "ImagePullBackOff")), stopped)
		if c := waiting.ContainerStatuses[0]; c.State.Waiting == nil || c.LastTerminationState.Terminated == nil {
			t.Errorf("%s, with an image that cannot be pulled: got %s", tt.name, describe(c.State))
		}
		again := compute(aScene(policy(tt.policy), with("a", running(1, 14), exited(0, tt.code, 12))), stopped)
		if c := again.ContainerStatuses[0]; c.State.Running == nil || c.RestartCount != 1 || c.LastTerminationState.Terminated == nil {
			t.Errorf("%s, up again: got %+v", tt.name, c)
		}
		over := compute(aScene(policy(tt.policy), with("a", exited(0, tt.code, 12))), stopped)
		if got := describe(over.ContainerStatuses[0].State); got == "running" {
			t.Errorf("%s, without a successor: got %s", tt.name, got)
		}
	}
}

// TestPostStartHookHidesItsContainer: until the hook has completed, the kubelet
// goes on showing what was before.
func TestPostStartHookHidesItsContainer(t *testing.T) {
	starting := func(id string) option {
		return func(s *scene) { s.PostStartRunning = map[string]bool{id: true} }
	}
	first := compute(aScene(with("a", running(0, 2)), waits("a", "ContainerCreating"), starting("a-0")), v1.PodStatus{})
	cs := first.ContainerStatuses[0]
	if describe(cs.State) != "waiting ContainerCreating" || cs.ContainerID != "" || cs.Ready || *cs.Started || first.Phase != v1.PodPending {
		t.Errorf("first start: got %s %q ready %v phase %s, want it waiting without an ID in a Pending pod", describe(cs.State), cs.ContainerID, cs.Ready, first.Phase)
	}
	told := compute(aScene(with("a", running(0, 2)), starting("a-0")), v1.PodStatus{})
	if got := told.ContainerStatuses[0].State.Waiting.Message; got != messageHook {
		t.Errorf("first start: got the message %q, want what it waits for", got)
	}
	completed := compute(aScene(with("a", running(0, 2))), first)
	if cs := completed.ContainerStatuses[0]; describe(cs.State) != "running" || !cs.Ready || cs.RestartCount != 0 {
		t.Errorf("hook completed: got %s ready %v, %d restarts", describe(cs.State), cs.Ready, cs.RestartCount)
	}
	before := compute(aScene(with("a", exited(0, 1, 7)), waits("a", "CrashLoopBackOff")), completed)
	again := compute(aScene(with("a", running(1, 8), exited(0, 1, 7)), starting("a-1")), before)
	if cs := again.ContainerStatuses[0]; describe(cs.State) != "waiting CrashLoopBackOff" || describe(cs.LastTerminationState) != "terminated Error 1" || cs.RestartCount != 0 || again.Phase != v1.PodRunning {
		t.Errorf("restart: got %s after %s, %d restarts in phase %s, want the back-off to be shown", describe(cs.State), describe(cs.LastTerminationState), cs.RestartCount, again.Phase)
	}
	stopped := compute(aScene(phase(pod.PhaseTerminating), with("a", running(0, 2)), starting("a-0")), first)
	if cs := stopped.ContainerStatuses[0]; describe(cs.State) != "running" {
		t.Errorf("a pod that is stopped meanwhile: got %s, want running", describe(cs.State))
	}
	failed := compute(aScene(with("a", exited(0, 137, 5)), waits("a", "PostStartHookError"), starting("a-0")), first)
	if cs := failed.ContainerStatuses[0]; describe(cs.State) != "waiting PostStartHookError" || describe(cs.LastTerminationState) != "terminated Error 137" {
		t.Errorf("a failed hook: got %s after %s", describe(cs.State), describe(cs.LastTerminationState))
	}
	over := compute(aScene(with("a", exited(0, 137, 5))), failed)
	if d := cmp.Diff(failed.ContainerStatuses, over.ContainerStatuses); d != "" {
		t.Errorf("about to be started again (-before +after):\n%s", d)
	}
	given := compute(aScene(phase(pod.PhaseTerminating), with("a", exited(0, 137, 5))), over)
	if cs := given.ContainerStatuses[0]; describe(cs.State) != "terminated Error 137" || describe(cs.LastTerminationState) != "" {
		t.Errorf("given up: got %s after %s, want its one end once", describe(cs.State), describe(cs.LastTerminationState))
	}
}

// TestProbesOfAFormerContainerDoNotCount: its successor has to prove itself.
func TestProbesOfAFormerContainerDoNotCount(t *testing.T) {
	probed := func(id string) option {
		return func(s *scene) {
			s.spec().Containers[0].ReadinessProbe = &v1.Probe{}
			s.Probes = pod.ProbeResults{"a": {ContainerID: id, Ready: pod.ProbeSucceeded}}
		}
	}
	up := compute(aScene(with("a", running(0, 2)), probed("a-0")), v1.PodStatus{})
	if !up.ContainerStatuses[0].Ready {
		t.Fatal("probed successfully: got unready")
	}
	next := compute(aScene(with("a", running(1, 9), exited(0, 1, 8)), probed("a-0")), up)
	if next.ContainerStatuses[0].Ready {
		t.Error("ready by the word of a probe of the container before it")
	}
	none := compute(aScene(with("a", running(0, 2)), probed("other"), func(s *scene) { s.Probes = nil }), v1.PodStatus{})
	if none.ContainerStatuses[0].Ready {
		t.Error("ready without any result of its readiness probe")
	}
}

func TestEndedPodShowsHowItsContainersEnded(t *testing.T) {
	before := compute(aScene(with("a", running(0, 2)), with("b", exited(1, 1, 7)), waits("b", "CrashLoopBackOff"), with("c"), waits("c", "ImagePullBackOff")), v1.PodStatus{})
	ended := compute(aScene(failed("DeadlineExceeded"), with("a", exited(0, 137, 9)), with("b", exited(1, 1, 7)), with("c"), waits("b", "CrashLoopBackOff"), waits("c", "ImagePullBackOff")), before)
	want := map[string]string{"a": "terminated Error 137", "b": "terminated Error 1", "c": "terminated ContainerStatusUnknown 137"}
	for _, cs := range ended.ContainerStatuses {
		if got := describe(cs.State); got != want[cs.Name] {
			t.Errorf("%s: got %s, want %s", cs.Name, got, want[cs.Name])
		}
	}
	if ended.Phase != v1.PodFailed || ended.Reason != "DeadlineExceeded" {
		t.Errorf("got %s %s, want Failed DeadlineExceeded", ended.Phase, ended.Reason)
	}
}

// TestAContainerDoesNotEndBeforeItStarts: by the runtime's record it may.
func TestAContainerDoesNotEndBeforeItStarts(t *testing.T) {
	for name, c := range map[string]struct{ started, finished, want time.Time }{
		"in order":  {at(8), at(9), at(8)},
		"at once":   {at(9), at(9), at(9)},
		"reversed":  {at(11), at(9), at(9)},
		"no record": {at(8), time.Time{}, at(8)},
	} {
		seen := exited(0, 1, 9)
		seen.StartedAt, seen.FinishedAt = c.started, c.finished
		end := compute(aScene(with("a", seen)), v1.PodStatus{}).ContainerStatuses[0].State.Terminated
		if end == nil || !end.StartedAt.Time.Equal(c.want) || !end.FinishedAt.Time.Equal(c.finished) {
			t.Errorf("%s: got %+v, want a start at %v", name, end, c.want)
		}
	}
}

func TestFailedInitLeavesTheRegularContainersWaiting(t *testing.T) {
	s := compute(aScene(policy(never), withSidecar("s", exited(0, 137, 9)), withInit("i", exited(0, 2, 5)), withInit("j"), with("a")), v1.PodStatus{})
	var got []string
	for _, cs := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		got = append(got, cs.Name+" "+describe(cs.State))
	}
	want := "s terminated Error 137, i terminated Error 2, j waiting PodInitializing, a waiting PodInitializing"
	if s.Phase != v1.PodFailed || strings.Join(got, ", ") != want {
		t.Errorf("got %s: %s; want Failed: %s", s.Phase, strings.Join(got, ", "), want)
	}
}

// TestPodThatEndsInItsInitContainers: what never began did not end either.
func TestPodThatEndsInItsInitContainers(t *testing.T) {
	before := compute(aScene(withInit("i", running(0, 2)), with("a")), v1.PodStatus{})
	ended := compute(aScene(failed("DeadlineExceeded"), withInit("i", exited(0, 0, 9)), with("a")), before)
	if got := describe(ended.ContainerStatuses[0].State); got != "waiting PodInitializing" || ended.Phase != v1.PodFailed {
		t.Errorf("got a %s in a %s pod, want it waiting in a Failed one", got, ended.Phase)
	}
	lost := compute(aScene(failed("DeadlineExceeded"), withInit("i", exited(0, 0, 9)), with("a", exited(0, 1, 12)), with("b")), before)
	if got := describe(lost.ContainerStatuses[1].State); got != "terminated ContainerStatusUnknown 137" {
		t.Errorf("beside one that ran: got %s", got)
	}
}

func TestRejectedPodHasNoContainersToSpeakOf(t *testing.T) {
	rejection := []option{noSandbox(), failed("NodeAffinity"), with("a")}
	s := compute(aScene(rejection...), v1.PodStatus{})
	want := v1.PodStatus{ObservedGeneration: 1, Phase: v1.PodFailed, Reason: "NodeAffinity", Message: "Pod was active too long",
		QOSClass: v1.PodQOSBestEffort, StartTime: s.StartTime}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff(s, compute(aScene(append(rejection, lookAt(500))...), s)); d != "" {
		t.Errorf("looked at again: (-first +second)\n%s", d)
	}
}

// TestAPodRejectedAfterItWaitedHasNoContainersEither: at a boot, pods are shown
// as waiting for the runtime before anybody decides about them.
func TestAPodRejectedAfterItWaitedHasNoContainersEither(t *testing.T) {
	pending := func(s *scene) { s.Phase = pod.PhasePending }
	waited := compute(aScene(noSandbox(), pending, with("a")), v1.PodStatus{})
	if len(waited.ContainerStatuses) != 1 || waited.ContainerStatuses[0].State.Waiting == nil {
		t.Fatalf("got %+v, want a container that waits", waited.ContainerStatuses)
	}
	rejected := compute(aScene(noSandbox(), pending, failed("NodeAffinity"), with("a")), waited)
	if len(rejected.ContainerStatuses) != 0 || rejected.Phase != v1.PodFailed || rejected.Reason != "NodeAffinity" {
		t.Errorf("got %+v, want it Failed, and no container that ended", rejected)
	}
	ran := compute(aScene(with("a", running(0, 2))), v1.PodStatus{})
	lost := compute(aScene(noSandbox(), pending, failed("Evicted"), with("a")), ran)
	if got := describe(lost.ContainerStatuses[0].State); got != "terminated ContainerStatusUnknown 137" {
		t.Errorf("one that ran: got %s", got)
	}
}

func TestConditionsOfTheWorkerAreShown(t *testing.T) {
	tell := func(conditions ...v1.PodCondition) option {
		return func(s *scene) { s.Conditions = conditions }
	}
	pending := v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: "not now", LastTransitionTime: metav1.NewTime(at(50))}
	target := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", Message: "low on memory", LastTransitionTime: metav1.NewTime(at(60))}
	s := compute(aScene(with("a", running(0, 2)), tell(pending)), v1.PodStatus{})
	if got := condition(s.Conditions, v1.PodResizePending); got == nil || got.Message != "not now" || !got.LastTransitionTime.Time.Equal(at(50)) {
		t.Errorf("resize: got %+v", got)
	}
	s2 := compute(aScene(with("a", running(0, 2)), tell(target)), s)
	if condition(s2.Conditions, v1.PodResizePending) != nil || condition(s2.Conditions, v1.DisruptionTarget) == nil {
		t.Errorf("the resize is over and the pod is to go: got %+v", s2.Conditions)
	}
	if Equal(&s, &s2) {
		t.Error("other conditions of ours made no difference")
	}
	s3 := compute(aScene(with("a", running(0, 2))), s2)
	if got := condition(s3.Conditions, v1.DisruptionTarget); got == nil || !got.LastTransitionTime.Time.Equal(at(60)) {
		t.Errorf("that the pod was to go is forgotten: got %+v", got)
	}
}

// TestSidecarWithExitCodeZeroIsShownAsEnded: the kubelet puts no waiting reason
// over an init container that ended well, a sidecar neither.
func TestSidecarWithExitCodeZeroIsShownAsEnded(t *testing.T) {
	s := compute(aScene(withSidecar("s", exited(1, 0, 5)), waits("s", "CrashLoopBackOff"), with("a", running(0, 2))), v1.PodStatus{})
	if got := describe(s.InitContainerStatuses[0].State); got != "terminated Completed 0" {
		t.Errorf("got %s", got)
	}
}
