package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// IsSidecar says that an init container is restartable: it is started in its
// turn and kept running through the pod's life (KEP-753). Ask it of members of
// spec.initContainers only; a regular container may carry the same policy and
// is no sidecar.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Failed says whether a container that ended so has failed. An init container that
// was OOM-killed has, whatever its exit code: a shell may end with 0 after the kernel
// killed its child, and what comes next would start on half of the work (upstream's
// isInitContainerFailed, kubernetes/kubernetes#104454).
func Failed(k ContainerKind, exitCode int32, reason string) bool {
	return exitCode != 0 || k == InitContainer && reason == ReasonOOMKilled
}

// ShouldRestart says whether a container that ended with exitCode, which was a failure
// or not (Failed), is to be started again: by the first of its restart rules that
// applies, else by its own restart policy, else by the pod's (KEP-5307). A regular init
// container of a pod that restarts Always is retried on failure only, which is the
// caller's to know: it asks only about failures.
func ShouldRestart(spec *v1.PodSpec, c *v1.Container, exitCode int32, failed bool) bool {
	switch RuleFor(c, exitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	policy := v1.ContainerRestartPolicy(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = *c.RestartPolicy
	}
	switch policy {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return failed
	default:
		return true
	}
}

// RuleFor is the action of the first of a container's restart rules that
// applies to an exit code; empty when none does.
func RuleFor(c *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	for _, rule := range c.RestartPolicyRules {
		if on := rule.ExitCodes; on != nil {
			in := slices.Contains(on.Values, exitCode)
			if in == (on.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
				return rule.Action
			}
		}
	}
	return ""
}
