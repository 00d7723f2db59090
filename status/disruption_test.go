package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestADisruptionOfOthersIsTheirs: who wanted the pod gone may take that back, also of a
// status that podd has computed meanwhile.
func TestADisruptionOfOthersIsTheirs(t *testing.T) {
	disruption := func(status v1.ConditionStatus, reason string) []v1.PodCondition {
		return []v1.PodCondition{{Type: v1.DisruptionTarget, Status: status, Reason: reason}}
	}
	for name, c := range map[string]struct {
		own, theirs []v1.PodCondition
		want        string
	}{
		"theirs is older in podd's":   {disruption(v1.ConditionTrue, "PreemptionByScheduler"), disruption(v1.ConditionFalse, "PreemptionByScheduler"), "False PreemptionByScheduler"},
		"theirs has gone":             {disruption(v1.ConditionTrue, "PreemptionByScheduler"), nil, ""},
		"podd's own":                  {disruption(v1.ConditionTrue, v1.PodReasonTerminationByKubelet), disruption(v1.ConditionFalse, "PreemptionByScheduler"), "True TerminationByKubelet"},
		"podd's own, not yet written": {disruption(v1.ConditionTrue, v1.PodReasonTerminationByKubelet), nil, "True TerminationByKubelet"},
	} {
		got := ""
		for _, now := range mergeConditions(c.own, c.theirs) {
			got += string(now.Status) + " " + now.Reason
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
