package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Group is a cgroup of the tree, by its path in each hierarchy.
type Group struct {
	Path string
	// Pod is set for a pod's cgroup and those of its sandboxes and containers. With the
	// systemd driver it has underscores for dashes: compare with Matches.
	Pod pod.UID
	// ID is a sandbox's or container's in the runtime; empty for cgroups above.
	ID string
}

// Groups lists the existing cgroups of the tree: the root, the QoS classes, the pods, and
// the sandboxes and containers of each pod, every cgroup before those below it. It reads
// one directory for each pod, of one hierarchy. It leaves out what disappears meanwhile.
func (t *Tree) Groups() []Group {
	mount, ok := t.facts.Controllers["memory"]
	if !ok {
		mount = t.facts.Controllers["cpu"]
	}
	root := t.rootRel()
	all := []Group{{Path: root}}
	for _, class := range classes {
		above := root
		if class != v1.PodQOSGuaranteed {
			above = t.classPath(class)
			if _, err := os.Lstat(filepath.Join(mount, above)); err != nil {
				continue
			}
			all = append(all, Group{Path: above})
		}
		prefix := "pod"
		if t.driver == Systemd {
			prefix = strings.TrimSuffix(path.Base(parent(t.driver, t.root, class, "")), ".slice")
		}
		for _, name := range directories(filepath.Join(mount, above)) {
			uid, ok := strings.CutPrefix(strings.TrimSuffix(name, ".slice"), prefix)
			if !ok || uid == "" {
				continue
			}
			at := path.Join(above, name)
			all = append(all, Group{Path: at, Pod: pod.UID(uid)})
			for _, name := range directories(filepath.Join(mount, at)) {
				if id := runtimeID(name); id != "" {
					all = append(all, Group{Path: path.Join(at, name), Pod: pod.UID(uid), ID: id})
				}
			}
		}
	}
	return all
}

// RootPath returns the path of the cgroup above all pods.
func (t *Tree) RootPath() string { return t.rootRel() }

// directories lists the names of a directory's directories, or none if it is gone.
func directories(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// runtimeID returns the ID in the name of a container's cgroup. The name is the ID itself,
// or cri-containerd-<id>.scope and the like under systemd. CRI-O's crio-conmon-<id>
// belongs to the container's monitor.
func runtimeID(name string) string {
	if strings.Contains(name, "conmon-") {
		return ""
	}
	stem, scope := strings.CutSuffix(name, ".scope")
	if scope || strings.HasPrefix(stem, "crio-") {
		stem = stem[strings.LastIndexByte(stem, '-')+1:]
	}
	return stem
}
