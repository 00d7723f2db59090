package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// DefaultRoot is where podd's groups are, as the cgroupfs driver writes it.
const DefaultRoot = "/podd/kubepods"

// Parent is the group of one pod, in the form that CRI's cgroup_parent takes for
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

// sliceName joins with dashes, which are systemd's slashes; dashes of a part
// itself become underscores, as the kubelet does.
func sliceName(parts []string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}

// slicePath is where a slice is in the hierarchy: every dash is a parent.
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
