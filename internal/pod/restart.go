package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// IsSidecar says that an init container is restartable: it starts in its turn and keeps
// running through the pod's life (KEP-753). Ask only about members of spec.initContainers;
// a regular container may carry the same policy and is no sidecar.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Failed says whether a container that ended in this way has failed. An OOM-killed init
// container has failed, whatever its exit code is: a shell may end with 0 after the kernel
// killed its child, and the next container would start on half of the work (upstream's
// isInitContainerFailed, kubernetes/kubernetes#104454).
func Failed(k ContainerKind, exitCode int32, reason string) bool {
	return exitCode != 0 || k == InitContainer && reason == ReasonOOMKilled
}

// ShouldRestart says whether to start a container again that ended with exitCode; failed
// says whether that was a failure (Failed). The first of its restart rules that applies
// decides, else its own restart policy, else the pod's (KEP-5307). A regular init container
// of a pod that restarts Always is retried on failure only: the caller must know that, and
// asks only about failures.
func ShouldRestart(spec *v1.PodSpec, c *v1.Container, exitCode int32, failed bool) bool {
	switch RestartRuleAction(c, exitCode) {
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

// RestartRuleAction returns the action of the first of a container's restart rules that
// applies to an exit code; empty if none does.
func RestartRuleAction(c *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
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
