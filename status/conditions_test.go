package status

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestConditions checks reason and message to the word.
func TestConditions(t *testing.T) {
	type row struct{ ready, containers, initialized, sandbox string }
	up := row{"True", "True", "True", "True"}
	tests := []struct {
		name string
		opts []option
		want row
	}{
		{"running", []option{with("a", running(0, 2))}, up},
		{"two not ready", []option{with("b"), with("a")}, row{
			"False ContainersNotReady containers with unready status: [b a]",
			"False ContainersNotReady containers with unready status: [b a]", "True", "True"}},
		{"no sandbox", []option{noSandbox(), with("a")}, row{
			"False ContainersNotReady containers with unready status: [a]",
			"False ContainersNotReady containers with unready status: [a]", "True", "False PodSandboxNotReady no pod sandbox exists"}},
		{"completed", []option{policy(never), with("a", exited(0, 0, 5))}, row{
			"False PodCompleted", "False PodCompleted", "True PodCompleted", "True"}},
		{"failed", []option{policy(never), with("a", exited(0, 3, 5))}, row{
			"False PodFailed", "False PodFailed", "True", "True"}},
		{"init runs", []option{withInit("i", running(0, 2)), withInit("j"), with("a")}, row{
			"False ContainersNotReady containers with unready status: [a]",
			"False ContainersNotReady containers with unready status: [a]",
			"False ContainersNotInitialized containers with incomplete status: [i j]", "True"}},
		{"sidecar counts", []option{withSidecar("s"), with("a", running(0, 4))}, row{
			"False ContainersNotReady containers with unready status: [s]",
			"False ContainersNotReady containers with unready status: [s]", "True", "True"}},
		{"gate missing", []option{with("a", running(0, 2)), gate("example.com/lb")}, row{
			`False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/lb" does not exist.`, "True", "True", "True"}},
		{"two ready sandboxes", []option{with("a", running(0, 2)), secondSandbox()}, row{"True", "True", "True", "False PodSandboxNotReady multiple pod sandboxes are ready and need to be reconciled"}},
	}
	for _, tt := range tests {
		s := compute(aScene(tt.opts...), v1.PodStatus{})
		got := row{word(s, v1.PodReady), word(s, v1.ContainersReady), word(s, v1.PodInitialized), word(s, v1.PodReadyToStartContainers)}
		if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(row{})); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, d)
		}
		if got := word(s, v1.PodScheduled); got != "True" {
			t.Errorf("%s: PodScheduled: got %s, want True", tt.name, got)
		}
	}
}

// TestTheRemovalOfAnEndedPodsSandboxChangesNoCondition: as with the kubelet, which does not look again.
func TestTheRemovalOfAnEndedPodsSandboxChangesNoCondition(t *testing.T) {
	ended := with("a", exited(0, 3, 5))
	before := compute(aScene(policy(never), ended, func(s *scene) { s.Observed.Sandboxes[0].Ready = false }), v1.PodStatus{})
	after := compute(aScene(policy(never), ended, noSandbox()), before)
	const want = "False PodSandboxNotReady pod sandbox is not ready"
	if b, a := word(before, v1.PodReadyToStartContainers), word(after, v1.PodReadyToStartContainers); b != want || a != want {
		t.Errorf("got %q, then %q; want %q both times", b, a, want)
	}
}

func word(s v1.PodStatus, t v1.PodConditionType) string {
	c := condition(s.Conditions, t)
	return strings.TrimSpace(string(c.Status) + " " + strings.TrimSpace(c.Reason+" "+c.Message))
}

func gate(t v1.PodConditionType) option {
	return func(s *scene) {
		s.spec().ReadinessGates = append(s.spec().ReadinessGates, v1.PodReadinessGate{ConditionType: t})
	}
}

func secondSandbox() option {
	return func(s *scene) {
		s.Observed.Sandboxes = append(s.Observed.Sandboxes, pod.Sandbox{ID: "s0", Ready: true, IPs: []string{"10.88.0.4"}})
	}
}

func TestReadinessGateOfOthersIsKeptAndHeeded(t *testing.T) {
	for status, want := range map[v1.ConditionStatus]string{
		v1.ConditionTrue:  "True",
		v1.ConditionFalse: `False ReadinessGatesNotReady the status of pod readiness gate "example.com/lb" is not "True", but False`,
	} {
		previous := v1.PodStatus{Conditions: []v1.PodCondition{{Type: "example.com/lb", Status: status}}}
		s := compute(aScene(with("a", running(0, 2)), gate("example.com/lb")), previous)
		if got := word(s, v1.PodReady); got != want {
			t.Errorf("gate %s: got %q, want %q", status, got, want)
		}
		if condition(s.Conditions, "example.com/lb") == nil {
			t.Errorf("gate %s: the condition of others was dropped", status)
		}
	}
}

// TestTransitionTimesMoveWithTheStatusOnly: a probe's verdict has no time but
// that of the look, which must not creep on.
func TestTransitionTimesMoveWithTheStatusOnly(t *testing.T) {
	look := func(n int, r pod.ProbeResult, previous v1.PodStatus) v1.PodStatus {
		return compute(aScene(lookAt(n), func(s *scene) {
			with("a", running(0, 2))(s)
			s.spec().Containers[0].ReadinessProbe = &v1.Probe{}
			s.Probes = pod.ProbeResults{"a": {ContainerID: "a-0", Ready: r}}
		}), previous)
	}
	since := func(s v1.PodStatus) string {
		return word(s, v1.PodReady)[:4] + condition(s.Conditions, v1.PodReady).LastTransitionTime.Sub(t0).String()
	}
	s := look(3, pod.ProbeUnknown, v1.PodStatus{})
	var got []string
	for _, step := range []struct {
		at int
		r  pod.ProbeResult
	}{{10, pod.ProbeSucceeded}, {20, pod.ProbeSucceeded}, {30, pod.ProbeFailed}, {40, pod.ProbeFailed}, {50, pod.ProbeSucceeded}} {
		s = look(step.at, step.r, s)
		got = append(got, since(s))
	}
	if want := "True10s True10s Fals30s Fals30s True50s"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// A change that podd learns of late, or a clock that was set back, gives a
// condition no time before the one that it had.
func TestTransitionTimesNeverGoBack(t *testing.T) {
	s := compute(aScene(lookAt(50), noSandbox(), with("a")), v1.PodStatus{})
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = seconds(at(50))
	}
	s = compute(aScene(lookAt(40), with("a", running(0, 20))), s)
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodReadyToStartContainers} {
		c := condition(s.Conditions, kind)
		if got := c.LastTransitionTime.Sub(t0); c.Status != v1.ConditionTrue || got < 50*time.Second {
			t.Errorf("%s: got %s since %v, want True, and no sooner than 50s", kind, c.Status, got)
		}
	}
}

// Termination messages share 12 KiB; where one is cut, it ends with a whole rune.
func TestTerminationMessagesAreCutBetweenRunes(t *testing.T) {
	for text, want := range map[string]int{
		strings.Repeat("x", 7000):                6144,
		"x" + strings.Repeat("\u00e9", 4000):     6143,
		"x" + strings.Repeat("\U0001f6a2", 2000): 6141,
		strings.Repeat("x", 6144):                6144,
	} {
		end := exited(0, 1, 5)
		end.Message = text
		s := compute(aScene(policy(never), with("a", end), with("b", running(0, 2))), v1.PodStatus{})
		got := s.ContainerStatuses[0].State.Terminated.Message
		if len(got) != want || !utf8.ValidString(got) || !strings.HasPrefix(text, got) {
			t.Errorf("a message of %d bytes: got %d, valid %v, want its first %d", len(text), len(got), utf8.ValidString(got), want)
		}
	}
}
