package volumes

import v1 "k8s.io/api/core/v1"

// Projects assigns project quotas to directories (package quota), so that the file
// system counts what they use.
type Projects interface {
	// Assign assigns a project ID to an empty directory, where that is supported.
	Assign(dir string)
}

// assignProject assigns a project quota to an emptyDir on disk of a pod in a user
// namespace, which cannot change project IDs.
func (e *emptyDir) assignProject(t target, dir string) {
	ownUsers := t.pod.Spec.HostUsers != nil && !*t.pod.Spec.HostUsers
	onDisk := t.volume.EmptyDir == nil || t.volume.EmptyDir.Medium == v1.StorageMediumDefault
	if e.projects != nil && ownUsers && onDisk {
		e.projects.Assign(dir)
	}
}
