package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/server"
)

// Volumes implements server.Runtime.
func (a serverRuntime) Volumes(p *v1.Pod) []server.Volume {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		a.log.Debug("cannot read the mount table", "error", err) // the paths are known without it
	}
	var all []server.Volume
	used := pod.UsedVolumes(p)
	for i := range p.Spec.Volumes {
		name := p.Spec.Volumes[i].Name
		if !used[name] {
			all = append(all, server.Volume{Name: name, Message: "not set up: no container mounts it"})
			continue
		}
		path, err := a.volumes.Path(p, name)
		if err != nil {
			all = append(all, server.Volume{Name: name, Message: err.Error()})
			continue
		}
		v := describeVolume(name, path, a.volumes.PodDir(p.UID), table)
		if b := a.volumes.Bound(p, name); b != nil {
			v.PersistentVolume = b.Volume.Name
		}
		all = append(all, v)
	}
	return all
}

// describeVolume describes a volume and its mount. It does not access the volume itself: the
// server of a mount may be dead, and the call would hang. It reads the parent directory to find
// out whether something below podDir exists.
func describeVolume(name, path, podDir string, table []*mountinfo.Info) server.Volume {
	v := server.Volume{Name: name, Path: path}
	for _, m := range table { // the last of stacked mounts is the visible one
		if m.Mountpoint == path {
			v.Source, v.FSType = m.Source, m.FSType
		}
	}
	if v.FSType != "" || !strings.HasPrefix(path, podDir+"/") {
		return v
	}
	siblings, err := os.ReadDir(filepath.Dir(path))
	made := err == nil && slices.ContainsFunc(siblings, func(e os.DirEntry) bool { return e.Name() == filepath.Base(path) })
	if !made {
		return server.Volume{Name: name, Message: "not set up"}
	}
	return v
}
