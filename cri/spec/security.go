package spec

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// namespaces returns the pod's namespaces: those that it shares with the node, and those
// that its containers share. The Client fills in the user namespace.
func namespaces(p *v1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
	if p.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(p.Spec.ShareProcessNamespace):
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

// sandboxSecurity returns the security context of a sandbox of that handler.
func sandboxSecurity(o Options, p *v1.Pod, handler string) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	s := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p),
		Privileged:       hasPrivileged(p),
		// The pause process needs no more, whatever the pod's containers ask for
		// (kubernetes/kubernetes#84623).
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if o.PauseProfile != "" && handler == "" {
		s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: o.PauseProfile}
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		return s, nil
	}
	s.RunAsUser, s.RunAsGroup = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup)
	s.SelinuxOptions = selinux(sc.SELinuxOptions)
	var err error
	s.SupplementalGroups, s.SupplementalGroupsPolicy, err = groups(sc)
	return s, err
}

// groups returns fsGroup and the supplemental groups, and their policy.
func groups(sc *v1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var out []int64
	if sc.FSGroup != nil {
		out = append(out, *sc.FSGroup)
	}
	out = append(out, sc.SupplementalGroups...)
	policy := runtimeapi.SupplementalGroupsPolicy_Merge
	if sc.SupplementalGroupsPolicy != nil {
		v, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*sc.SupplementalGroupsPolicy)]
		if !ok {
			return nil, policy, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *sc.SupplementalGroupsPolicy)
		}
		policy = runtimeapi.SupplementalGroupsPolicy(v)
	}
	return out, policy, nil
}

func hasPrivileged(p *v1.Pod) bool {
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if sc := c.SecurityContext; kind != pod.EphemeralContainer && sc != nil && isTrue(sc.Privileged) {
			return true
		}
	}
	return false
}

// containerSecurity returns the container's security context. imageUID and imageUser are
// the image's own user, used if the pod names none.
func containerSecurity(o Options, p *v1.Pod, c *v1.Container, imageUID *int64, imageUser string) (*runtimeapi.LinuxContainerSecurityContext, error) {
	e := pod.SecurityContext(p, c)
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(p),
		Privileged:       isTrue(e.Privileged),
		ReadonlyRootfs:   isTrue(e.ReadOnlyRootFilesystem),
		NoNewPrivs:       e.AllowPrivilegeEscalation != nil && !*e.AllowPrivilegeEscalation,
		Capabilities:     capabilities(e.Capabilities),
		SelinuxOptions:   selinux(e.SELinuxOptions),
		RunAsUser:        int64Value(e.RunAsUser),
		RunAsGroup:       int64Value(e.RunAsGroup),
	}
	switch {
	case s.RunAsUser != nil:
	case imageUID != nil:
		s.RunAsUser = int64Value(imageUID)
	case imageUser != "":
		s.RunAsUsername = imageUser
	default:
		// An image without a user runs as root. Saying so lets a pod give a group
		// alone, which runtimes reject without a user.
		s.RunAsUser = &runtimeapi.Int64Value{}
	}
	if e.ProcMount == nil || *e.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths(), readonlyPaths
	}
	var err error
	if s.Seccomp, err = seccomp(o, e.SeccompProfile); err != nil {
		return nil, err
	}
	//lint:ignore SA1019 older runtimes read the deprecated field only
	if s.Apparmor, s.ApparmorProfile, err = appArmor(appArmorProfile(p, c)); err != nil {
		return nil, err
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		s.SupplementalGroups, s.SupplementalGroupsPolicy, err = groups(sc)
	}
	return s, err
}

func seccomp(o Options, profile *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case profile == nil && o.SeccompDefault, profile != nil && profile.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case profile != nil && profile.Type == v1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.") // upstream's words
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(o.SeccompRoot, *profile.LocalhostProfile),
		}, nil
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
}

// appArmorProfile returns the container's field, or else its annotation, which pods used
// before the fields existed, or else the pod's field.
func appArmorProfile(p *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if noted := appArmorFromAnnotation(p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]); noted != nil {
		return noted
	}
	if p.Spec.SecurityContext != nil {
		return p.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// appArmor returns the profile in CRI's new and old form.
func appArmor(profile *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, string, error) {
	if profile == nil {
		return nil, "", nil
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil {
			return nil, "", errors.New("missing localhost apparmor profile name")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *profile.LocalhostProfile},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + *profile.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("unknown apparmor profile type: %q", profile.Type)
	}
}

func appArmorFromAnnotation(value string) *v1.AppArmorProfile {
	switch value {
	case "":
		return nil
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	prefix := v1.DeprecatedAppArmorBetaProfileNamePrefix
	if len(value) > len(prefix) && value[:len(prefix)] == prefix {
		name := value[len(prefix):]
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// verifyNonRoot returns an error, in the kubelet's words, for a container that must not run
// as root but would, or might.
func verifyNonRoot(p *v1.Pod, c *v1.Container, imageUID *int64, imageUser string) error {
	e := pod.SecurityContext(p, c)
	if !isTrue(e.RunAsNonRoot) {
		return nil
	}
	who := fmt.Sprintf("(pod: %q, container: %s)", p.Name+"_"+p.Namespace+"("+string(p.UID)+")", c.Name)
	switch {
	case e.RunAsUser != nil && *e.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
	case e.RunAsUser != nil:
		return nil
	case imageUID == nil && imageUser != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", imageUser, who)
	case imageUID == nil || *imageUID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	case *imageUID < 0 || *imageUID > math.MaxInt32:
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)) %s", *imageUID, math.MaxInt32, who)
	}
	return nil
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, v := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(v))
	}
	for _, v := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(v))
	}
	return out
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// maskedPaths are the kubelet's defaults (pkg/securitycontext), with the
// thermal throttle counters of the CPUs that this node has.
var maskedPaths = sync.OnceValue(func() []string {
	paths := []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	found, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	if err != nil {
		return paths
	}
	for _, p := range found {
		if _, err := os.Stat(p); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
})

func isTrue(b *bool) bool { return b != nil && *b }
