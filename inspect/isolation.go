package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

func (x *comparison) compareSeccomp() {
	given := "none"
	if x.privileged() {
		given = "none, as it is privileged"
	}
	if s := x.linux.Seccomp; s != nil {
		given = fmt.Sprintf("default %s, %d rules", s.DefaultAction, len(s.Syscalls))
	}
	profile := x.security.SeccompProfile
	if profile == nil {
		x.row("seccompProfile", "", given, false)
		return
	}
	wanted := string(profile.Type)
	if profile.LocalhostProfile != nil {
		wanted += " " + *profile.LocalhostProfile
	}
	// A privileged container has no profile, whatever it names.
	confined := profile.Type != v1.SeccompProfileTypeUnconfined && !x.privileged()
	x.row("seccompProfile", wanted, given, confined != (x.linux.Seccomp != nil))
}

// compareSecurityLabels compares those of the Linux security modules.
func (x *comparison) compareSecurityLabels() {
	if a := x.security.AppArmorProfile; a != nil {
		wanted := string(a.Type)
		if a.LocalhostProfile != nil {
			wanted += " " + *a.LocalhostProfile
		}
		given := x.process.ApparmorProfile
		differs := false
		switch a.Type {
		case v1.AppArmorProfileTypeLocalhost:
			differs = a.LocalhostProfile != nil && *a.LocalhostProfile != given
		case v1.AppArmorProfileTypeRuntimeDefault:
			differs = !x.privileged() && (given == "" || given == "unconfined")
		default:
			differs = given != "" && given != "unconfined"
		}
		x.row("appArmorProfile", wanted, given, differs)
	} else {
		x.row("appArmorProfile", "", x.process.ApparmorProfile, false)
	}
	wanted := ""
	if s := x.security.SELinuxOptions; s != nil {
		wanted = fmt.Sprintf("%s:%s:%s:%s", s.User, s.Role, s.Type, s.Level)
	}
	x.row("seLinuxOptions", wanted, x.process.SelinuxLabel, false)
}

// compareMaskedPaths compares the masked and read-only paths of /proc and /sys.
func (x *comparison) compareMaskedPaths() {
	wanted := ""
	open := x.privileged()
	if m := x.security.ProcMount; m != nil {
		wanted = string(*m)
		open = open || *m == v1.UnmaskedProcMount
	}
	masked, readonly := x.linux.MaskedPaths, x.linux.ReadonlyPaths
	x.row("procMount: masked", wanted, list(masked), open != (len(masked) == 0))
	x.row("procMount: read-only", wanted, list(readonly), open != (len(readonly) == 0))
}

// compareNamespaces compares the owners of the namespaces that the container is in: the
// node, its pod, or the container itself.
func (x *comparison) compareNamespaces() {
	spec := &x.Pod.Spec
	whose := func(node bool, otherwise string) string {
		if node {
			return "node"
		}
		return otherwise
	}
	process := "container"
	if isTrue(spec.ShareProcessNamespace) {
		process = "pod"
	}
	for _, n := range []struct {
		kind   specs.LinuxNamespaceType
		wanted string
	}{
		{specs.NetworkNamespace, whose(spec.HostNetwork, "pod")},
		{specs.UTSNamespace, whose(spec.HostNetwork, "pod")},
		{specs.IPCNamespace, whose(spec.HostIPC, "pod")},
		{specs.PIDNamespace, whose(spec.HostPID, process)},
		{specs.MountNamespace, "container"},
		{specs.UserNamespace, whose(spec.HostUsers == nil || *spec.HostUsers, "pod")},
		{specs.CgroupNamespace, ""},
	} {
		given, path := x.namespaceOwner(n.kind)
		differs := n.wanted != "" && given != "" && n.wanted != given
		if path != "" {
			given = strings.TrimSpace(given + " (" + path + ")")
		}
		x.row(string(n.kind), n.wanted, given, differs)
	}
	for _, m := range x.linux.UIDMappings {
		x.row("user IDs", "", fmt.Sprintf("%d-%d are the node's %d-%d", m.ContainerID, m.ContainerID+m.Size-1, m.HostID, m.HostID+m.Size-1), false)
	}
}

// namespaceOwner returns the namespace's owner ("" if unknown), and its path if it has one.
func (x *comparison) namespaceOwner(kind specs.LinuxNamespaceType) (whose, path string) {
	at := slices.IndexFunc(x.linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
	if at < 0 {
		return "node", ""
	}
	n := x.linux.Namespaces[at]
	switch {
	case n.Path == "" && kind == specs.UserNamespace:
		return "pod", "" // with its pod's IDs
	case n.Path == "":
		return "container", ""
	case x.IsHostNamespace == nil:
		return "", n.Path
	}
	own, known := x.IsHostNamespace(n)
	switch {
	case !known:
		return "", n.Path
	case own:
		return "node", n.Path
	}
	return "pod", n.Path
}

// compareDevices compares the devices beyond the standard ones, and which ones the
// cgroup permits.
func (x *comparison) compareDevices() {
	for _, d := range x.Container.VolumeDevices {
		given := ""
		if at := slices.IndexFunc(x.linux.Devices, func(g specs.LinuxDevice) bool { return g.Path == d.DevicePath }); at >= 0 {
			given = device(&x.linux.Devices[at])
		}
		x.row(d.DevicePath, "volume "+d.Name, given, given == "")
	}
	var more []string
	for i := range x.linux.Devices {
		d := &x.linux.Devices[i]
		if !slices.ContainsFunc(x.Container.VolumeDevices, func(v v1.VolumeDevice) bool { return v.DevicePath == d.Path }) {
			more = append(more, d.Path)
		}
	}
	x.row("others", "", strings.Join(truncateList(more), " "), false)
	var rules []string
	for _, r := range x.resources.Devices {
		verb := "deny"
		if r.Allow {
			verb = "allow"
		}
		rules = append(rules, fmt.Sprintf("%s %s:%s %s", verb, major(r.Major), major(r.Minor), r.Access))
	}
	x.row("rules", "", strings.Join(truncateList(rules), "; "), false)
}

// maxDevices is how many of a privileged container's devices are listed: it has
// all of the node's.
const maxDevices = 10

func truncateList(all []string) []string {
	if len(all) <= maxDevices {
		return all
	}
	return append(all[:maxDevices], fmt.Sprintf("and %d more", len(all)-maxDevices))
}

func device(d *specs.LinuxDevice) string { return fmt.Sprintf("%s %d:%d", d.Type, d.Major, d.Minor) }

func major(n *int64) string {
	if n == nil || *n < 0 {
		return "*"
	}
	return strconv.FormatInt(*n, 10)
}
