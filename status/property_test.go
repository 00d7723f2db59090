package status

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// TestWhateverIsReported follows pods whose reports make little sense through
// many looks, and checks what must hold of every status.
func TestWhateverIsReported(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		base := randomPod(r)
		var before v1.PodStatus
		for look := range 12 {
			report := aScene(base...)
			randomLook(r, &report, look)
			copied := *before.DeepCopy()
			now := compute(report, before)
			if d := cmp.Diff(copied, before); d != "" {
				t.Fatalf("seed %d, look %d: the previous status was changed:\n%s", seed, look, d)
			}
			if wrong := violated(&report, &before, &now); wrong != "" {
				t.Fatalf("seed %d, look %d: %s\nbefore %+v\nreport %+v\nnow %+v", seed, look, wrong, before, report, now)
			}
			settled := compute(report, compute(report, now))
			if d := cmp.Diff(settled, compute(report, settled)); d != "" {
				t.Fatalf("seed %d, look %d: the same look says otherwise for the fourth time:\n%s", seed, look, d)
			}
			before = now
		}
	}
}

func violated(r *pod.Report, before, now *v1.PodStatus) string {
	if pod.IsPhaseTerminal(before.Phase) && now.Phase != before.Phase {
		return fmt.Sprintf("went from %s to %s", before.Phase, now.Phase)
	}
	if now.Phase == "" || now.StartTime == nil || now.QOSClass == "" {
		return "no phase, start time or QoS class"
	}
	for _, lists := range [][2][]v1.ContainerStatus{{before.InitContainerStatuses, now.InitContainerStatuses}, {before.ContainerStatuses, now.ContainerStatuses}} {
		for i := range lists[1] {
			cs := &lists[1][i]
			states := 0
			for _, is := range []bool{cs.State.Waiting != nil, cs.State.Running != nil, cs.State.Terminated != nil} {
				if is {
					states++
				}
			}
			old := pod.FindContainerStatus(lists[0], cs.Name)
			last := cs.LastTerminationState.Terminated
			switch {
			case states != 1:
				return fmt.Sprintf("%s has %d states", cs.Name, states)
			case old != nil && cs.RestartCount < old.RestartCount:
				return fmt.Sprintf("%s: restarts went from %d to %d", cs.Name, old.RestartCount, cs.RestartCount)
			case cs.Ready && cs.State.Waiting != nil:
				return cs.Name + " is ready and waits"
			case cs.State.Terminated != nil && last != nil && last.ContainerID != "" && last.ContainerID == cs.State.Terminated.ContainerID:
				return cs.Name + " is its own predecessor"
			case pod.IsPhaseTerminal(now.Phase) && !pod.IsPhaseTerminal(before.Phase) && cs.State.Running != nil:
				return cs.Name + " runs in a pod that ended"
			}
		}
	}
	seen := map[v1.PodConditionType]bool{}
	for _, c := range now.Conditions {
		if seen[c.Type] || c.LastTransitionTime.IsZero() {
			return fmt.Sprintf("condition %s is there twice, or without a time", c.Type)
		}
		seen[c.Type] = true
	}
	return ""
}

func randomPod(r *rand.Rand) []option {
	opts := []option{policy([]v1.RestartPolicy{always, onFailure, never}[r.IntN(3)])}
	if r.IntN(2) == 0 {
		opts = append(opts, source(pod.SourceAPIServer))
	}
	if r.IntN(2) == 0 {
		opts = append(opts, withInit("i"))
	}
	if r.IntN(2) == 0 {
		opts = append(opts, withSidecar("s"))
	}
	opts = append(opts, with("a"))
	if r.IntN(2) == 0 {
		opts = append(opts, with("b"))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, ownPolicy("a", v1.ContainerRestartPolicyNever, on(v1.ContainerRestartRuleActionRestartAllContainers, 1)))
	}
	return append(opts, started(r.IntN(2) == 0, "s"))
}

// randomLook gives a report containers of any attempts and states, out of order
// and partly in other sandboxes, reasons, probes and conditions.
func randomLook(r *rand.Rand, report *pod.Report, look int) {
	report.At = at(look * 10)
	report.Probes, report.PostStartRunning = pod.ProbeResults{}, map[string]bool{}
	if r.IntN(4) == 0 {
		report.Phase = pod.Phase(r.IntN(int(pod.PhaseGone)))
	}
	if r.IntN(12) == 0 {
		report.Failed, report.Reason = true, "Evicted"
	}
	if r.IntN(6) == 0 {
		report.Observed.Sandboxes = nil
	}
	if r.IntN(6) == 0 {
		report.Conditions = append(report.Conditions, v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue})
	}
	if r.IntN(6) == 0 {
		report.Conditions = append(report.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(look))})
	}
	for _, name := range []string{"i", "s", "a", "b"} {
		for range r.IntN(3) {
			attempt := int32(r.IntN(4))
			c := pod.Container{ID: fmt.Sprintf("%s-%d", name, attempt), Name: name, SandboxID: fmt.Sprintf("s%d", r.IntN(2)), RestartCount: attempt,
				State: pod.ContainerState(r.IntN(4)), StartedAt: at(look), FinishedAt: at(look + 1), ExitCode: int32(r.IntN(2)), Reason: "Error"}
			report.Observed.Containers = append(report.Observed.Containers, c)
			if r.IntN(4) == 0 {
				report.PostStartRunning[c.ID] = true
			}
			if r.IntN(2) == 0 {
				report.Probes[name] = pod.Probes{ContainerID: c.ID, Startup: pod.ProbeResult(r.IntN(3)), Ready: pod.ProbeResult(r.IntN(3))}
			}
		}
		if r.IntN(3) == 0 {
			report.Waiting[name] = pod.Waiting{Reason: []string{"ContainerCreating", "CrashLoopBackOff", "ErrImagePull", ""}[r.IntN(4)]}
		}
	}
}
