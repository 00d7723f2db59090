package volumes

import v1 "k8s.io/api/core/v1"

// Projects has the file system count what is in a directory (package quota).
type Projects interface {
	// Assign begins that for an empty directory, where it can be done.
	Assign(dir string)
}

// count has the file system count what is on disk of a pod in a user namespace, which
// cannot change that.
func (e *emptyDir) count(t target, dir string) {
	ownUsers := t.pod.Spec.HostUsers != nil && !*t.pod.Spec.HostUsers
	onDisk := t.volume.EmptyDir == nil || t.volume.EmptyDir.Medium == v1.StorageMediumDefault
	if e.projects != nil && ownUsers && onDisk {
		e.projects.Assign(dir)
	}
}
