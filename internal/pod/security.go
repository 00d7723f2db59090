package pod

import v1 "k8s.io/api/core/v1"

// SecurityContext returns the container's security context, with the pod's users, SELinux
// options and seccomp profile if the container does not set its own. The AppArmor profile
// is only the container's, because annotations of the pod may set it, too.
func SecurityContext(p *v1.Pod, c *v1.Container) v1.SecurityContext {
	var out v1.SecurityContext
	if c.SecurityContext != nil {
		out = *c.SecurityContext
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		return out
	}
	if out.SELinuxOptions == nil {
		out.SELinuxOptions = sc.SELinuxOptions
	}
	if out.RunAsUser == nil {
		out.RunAsUser = sc.RunAsUser
	}
	if out.RunAsGroup == nil {
		out.RunAsGroup = sc.RunAsGroup
	}
	if out.RunAsNonRoot == nil {
		out.RunAsNonRoot = sc.RunAsNonRoot
	}
	if out.SeccompProfile == nil {
		out.SeccompProfile = sc.SeccompProfile
	}
	return out
}
