package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// DefaultRoot is the root of podd's cgroups, in the cgroupfs driver's notation.
const DefaultRoot = "/podd/kubepods"

// Parent returns a pod's cgroup in the form that CRI's cgroup_parent takes for
// the driver: a path (cgroupfs) or the name of a slice (systemd).
func Parent(driver Driver, root string, p *v1.Pod) string {
	return parent(driver, root, pod.QOSClass(p), p.UID)
}

func parent(driver Driver, root string, class v1.PodQOSClass, uid pod.UID) string {
	parts := strings.Split(strings.Trim(root, "/"), "/")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	parts = append(parts, "pod"+string(uid))
	if driver != Systemd {
		return "/" + path.Join(parts...)
	}
	return sliceName(parts)
}

// sliceName joins parts with dashes, systemd's separator of levels; dashes
// within a part become underscores, as the kubelet does.
func sliceName(parts []string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}

// slicePath returns a slice's path in the hierarchy: each dash stands for a
// parent.
func slicePath(name string) string {
	stem := strings.TrimSuffix(name, ".slice")
	p := "/"
	for i, c := range stem {
		if c == '-' {
			p = path.Join(p, stem[:i]+".slice")
		}
	}
	return path.Join(p, name)
}
