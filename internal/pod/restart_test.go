package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestShouldRestart(t *testing.T) {
	on, no, always := v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}}
	}
	all := rule(v1.ContainerRestartRuleOnExitCodesOpIn, 42)
	all[0].Action = v1.ContainerRestartRuleActionRestartAllContainers
	tests := []struct {
		name      string
		container v1.Container
		pod       v1.RestartPolicy
		code      int32
		want      bool
	}{
		{"pod Always", v1.Container{}, v1.RestartPolicyAlways, 0, true},
		{"pod OnFailure 0", v1.Container{}, v1.RestartPolicyOnFailure, 0, false},
		{"pod OnFailure 1", v1.Container{}, v1.RestartPolicyOnFailure, 1, true},
		{"pod Never 1", v1.Container{}, v1.RestartPolicyNever, 1, false},
		{"own OnFailure wins", v1.Container{RestartPolicy: &on}, v1.RestartPolicyNever, 1, true},
		{"own Never wins", v1.Container{RestartPolicy: &no}, v1.RestartPolicyAlways, 1, false},
		{"own Always wins", v1.Container{RestartPolicy: &always}, v1.RestartPolicyNever, 0, true},
		{"rule wins", v1.Container{RestartPolicy: &no, RestartPolicyRules: rule(v1.ContainerRestartRuleOnExitCodesOpIn, 42)}, v1.RestartPolicyAlways, 42, true},
		{"rule misses", v1.Container{RestartPolicy: &no, RestartPolicyRules: rule(v1.ContainerRestartRuleOnExitCodesOpIn, 42)}, v1.RestartPolicyAlways, 1, false},
		{"rule NotIn", v1.Container{RestartPolicy: &no, RestartPolicyRules: rule(v1.ContainerRestartRuleOnExitCodesOpNotIn, 42)}, v1.RestartPolicyAlways, 1, true},
		{"rule restarts all", v1.Container{RestartPolicy: &no, RestartPolicyRules: all}, v1.RestartPolicyNever, 42, true},
	}
	for _, tt := range tests {
		spec := v1.PodSpec{RestartPolicy: tt.pod}
		if got := ShouldRestart(&spec, &tt.container, tt.code, Failed(RegularContainer, tt.code, "")); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFailed(t *testing.T) {
	for _, tt := range []struct {
		kind   ContainerKind
		code   int32
		reason string
		want   bool
	}{
		{InitContainer, 0, ReasonCompleted, false},
		{InitContainer, 1, ReasonExitError, true},
		{InitContainer, 137, ReasonOOMKilled, true},
		{InitContainer, 0, ReasonOOMKilled, true},
		{RegularContainer, 0, ReasonOOMKilled, false}, // as in the kubelet
		{SidecarContainer, 0, ReasonOOMKilled, false},
		{RegularContainer, 137, ReasonOOMKilled, true},
	} {
		if got := Failed(tt.kind, tt.code, tt.reason); got != tt.want {
			t.Errorf("kind %d, code %d, reason %s: got %v, want %v", tt.kind, tt.code, tt.reason, got, tt.want)
		}
	}
}
