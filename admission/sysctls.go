package admission

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safe are the sysctls that every pod may set, with the first kernel in which a
// namespace has them for itself (pkg/kubelet/sysctl/safe_sysctls.go).
var safe = []struct {
	name         string
	major, minor int
}{
	{"kernel.shm_rmid_forced", 0, 0},
	{"net.ipv4.ip_local_port_range", 0, 0},
	{"net.ipv4.tcp_syncookies", 0, 0},
	{"net.ipv4.ping_group_range", 0, 0},
	{"net.ipv4.ip_unprivileged_port_start", 0, 0},
	{"net.ipv4.ip_local_reserved_ports", 3, 16},
	{"net.ipv4.tcp_keepalive_time", 4, 5},
	{"net.ipv4.tcp_fin_timeout", 4, 6},
	{"net.ipv4.tcp_keepalive_intvl", 4, 5},
	{"net.ipv4.tcp_keepalive_probes", 4, 5},
	{"net.ipv4.tcp_rmem", 4, 15},
	{"net.ipv4.tcp_wmem", 4, 15},
	{"net.ipv4.tcp_slow_start_after_idle", 4, 15},
	{"net.ipv4.tcp_notsent_lowat", 4, 6},
}

// Sysctls are those that pods may set. The zero value allows none.
type Sysctls struct {
	names, prefixes map[string]sysctl.Namespace
}

// NewSysctls allows a kernel's safe sysctls, and those that the operator allows in
// addition (allowedUnsafeSysctls): names, or beginnings of names with * at the end.
// release is the kernel's, as uname -r prints it. A sysctl in an unknown namespace would
// change the node and is an error.
func NewSysctls(release string, unsafe []string) (Sysctls, error) {
	s := Sysctls{names: map[string]sysctl.Namespace{}, prefixes: map[string]sysctl.Namespace{}}
	for _, each := range safe {
		if atLeast(release, each.major, each.minor) {
			s.names[each.name], _, _ = sysctl.GetNamespace(each.name)
		}
	}
	for _, pattern := range unsafe {
		ns, name, prefix := sysctl.GetNamespace(pattern)
		switch {
		case ns == sysctl.UnknownNamespace:
			return Sysctls{}, fmt.Errorf("the sysctl %q is not known to belong to a namespace of the pod: allow kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*, kernel.domainname or user.* only", pattern)
		case prefix:
			s.prefixes[name] = ns
		default:
			s.names[name] = ns
		}
	}
	return s, nil
}

// check says why a pod may not set a sysctl, in the kubelet's words: one of a namespace that
// the pod shares with the node would be the node's.
func (s Sysctls) check(name string, spec *v1.PodSpec) error {
	name = sysctl.NormalizeName(name)
	ns, ok := s.names[name]
	for prefix, of := range s.prefixes {
		if !ok && strings.HasPrefix(name, prefix) {
			ns, ok = of, true
		}
	}
	switch {
	case !ok:
		return fmt.Errorf("%q not allowlisted: allowedUnsafeSysctls in the configuration names those that pods may set", name)
	case ns == sysctl.IPCNamespace && spec.HostIPC, ns == sysctl.NetNamespace && spec.HostNetwork,
		ns == sysctl.UserNamespace && (spec.HostUsers == nil || *spec.HostUsers):
		return fmt.Errorf("%q not allowed with host %s enabled", name, ns)
	}
	return nil
}

// atLeast compares a kernel's release; one that cannot be read is taken for an
// old one, as in the kubelet.
func atLeast(release string, major, minor int) bool {
	if major == 0 {
		return true
	}
	fields := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) < 2 {
		return false
	}
	x, errX := strconv.Atoi(fields[0])
	y, errY := strconv.Atoi(fields[1])
	return errX == nil && errY == nil && (x > major || x == major && y >= minor)
}
