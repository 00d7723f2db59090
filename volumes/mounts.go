package volumes

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Mounts returns the mounts of one of the pod's containers, in the order of its
// volumeMounts. subPaths has the expanded subPath of each volumeMount, by the same index;
// it is nil if there are none. Ensure must have reported the volumes as ready. Mounts
// checks the types of hostPaths again, creates each missing subPath, and bind-mounts each
// subPath below the pod's directory, which may fail. Calling it again for a restarted
// container reuses the bind mounts that are still right. It blocks for hangTimeout at most: a
// subPath or a hostPath's type that hangs, as on a dead mount, is an error, and the work
// continues in the background. Errors are *pod.ReasonError with CreateContainerConfigError.
func (m *Mounter) Mounts(p *v1.Pod, c *v1.Container, subPaths []string) ([]pod.Mount, error) {
	if len(c.VolumeMounts) == 0 {
		return nil, nil
	}
	within, cancel := context.WithTimeoutCause(context.Background(), hangTimeout, errHangTimeout)
	defer cancel()
	unlock, err := m.lock(within, p.UID)
	if err != nil {
		return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, cmp.Or(m.hung(p.UID), err))
	}
	o := &podSetUp{pod: p, since: time.Now()}
	if !m.hasTypedHostPath(p, c) && !slices.ContainsFunc(subPaths, func(sub string) bool { return sub != "" }) { // cannot block
		defer unlock()
		return m.mountsOf(o, c, subPaths)
	}
	type outcome struct {
		mounts []pod.Mount
		err    error
	}
	done := make(chan outcome, 1)
	m.setLockHolder(lockKey{pod: p.UID}, o)
	go func() {
		defer unlock()
		defer m.setLockHolder(lockKey{pod: p.UID}, nil)
		mounts, err := m.mountsOf(o, c, subPaths)
		done <- outcome{mounts, err}
	}()
	select {
	case out := <-done:
		return out.mounts, out.err
	case <-within.Done():
		return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, cmp.Or(m.hung(p.UID), context.Cause(within)))
	}
}

// mountsOf returns the mounts of a container; the pod's lock is held.
func (m *Mounter) mountsOf(o *podSetUp, c *v1.Container, subPaths []string) ([]pod.Mount, error) {
	if err := m.checkHostPathTypes(o, c); err != nil {
		return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	mounts := make([]pod.Mount, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		sub := ""
		if i < len(subPaths) {
			sub = subPaths[i]
		}
		m.setCurrentVolume(o, c.VolumeMounts[i].Name)
		mount, err := m.mountOf(o.pod, c, i, sub)
		if err != nil {
			return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func (m *Mounter) mountOf(p *v1.Pod, c *v1.Container, index int, sub string) (pod.Mount, error) {
	wanted := &c.VolumeMounts[index]
	volume := volumeNamed(p, wanted.Name)
	if volume == nil {
		return pod.Mount{}, fmt.Errorf("cannot find volume %q to mount into container %q", wanted.Name, c.Name)
	}
	k, t, err := m.resolve(p, volume)
	if err != nil {
		return pod.Mount{}, err
	}
	hostPath := k.path(t)

	sub, err = checkSubPath(sub)
	if err != nil {
		return pod.Mount{}, subPathError(wanted, c, err)
	}
	var image pod.ImageMount
	switch {
	case volume.Image != nil:
		image = imageMount(volume, sub)
	case sub != "":
		hostPath, err = m.prepareSubPath(k, subPath{
			volume: t, content: hostPath, path: sub, container: c.Name, index: index,
		}, subPathName(wanted, c))
		if err != nil {
			return pod.Mount{}, subPathError(wanted, c, err)
		}
	}
	recursive, err := recursiveReadOnly(wanted, m.options.RecursiveReadOnly)
	if err != nil {
		return pod.Mount{}, err
	}
	propagation, err := propagationOf(wanted, c)
	if err != nil {
		return pod.Mount{}, err
	}
	// The propagation of other host paths is up to the administrator.
	if propagation != "" && strings.HasPrefix(hostPath, m.PodDir(p.UID)+"/") {
		if err := shareMounts(hostPath); err != nil {
			return pod.Mount{}, err
		}
	}
	readOnly := t.readOnly()
	return pod.Mount{
		HostPath:          hostPath,
		Image:             image,
		ContainerPath:     path.Join("/", wanted.MountPath),
		ReadOnly:          wanted.ReadOnly || k.live || volume.Image != nil || readOnly,
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		SELinuxRelabel:    k.managed && !readOnly && (k.labelled == nil || !k.labelled(t)), // the runtime cannot relabel a read-only mount
	}, nil
}

// prepareSubPath is bindSubPath; for a live volume, it also keeps the volume from being written
// meanwhile. A subPath that a live volume lacks is a key that may still come and that
// nobody can create in a directory: the pod gets an event saying that its container starts
// without it.
func (m *Mounter) prepareSubPath(k *kind, s subPath, what string) (string, error) {
	if !k.live {
		point, _, err := m.bindSubPath(s)
		return point, err
	}
	unlock, err := m.lockLive(context.Background(), s.volume.pod.UID)
	if err != nil {
		return "", err
	}
	defer unlock()
	point, made, err := m.bindSubPath(s)
	if err == nil && made && m.options.Events != nil {
		m.options.Events.Event(s.volume.pod, v1.EventTypeWarning, "SubPathNotFound", what+
			" does not exist yet: the container gets an empty directory in its place, until it starts again after the key has appeared")
	}
	return point, err
}

// subPathError adds the subPath as it is written in the manifest to an error.
func subPathError(m *v1.VolumeMount, c *v1.Container, err error) error {
	return fmt.Errorf("%s: %w", subPathName(m, c), err)
}

// subPathName shows no value of a variable, because it may be a Secret's.
func subPathName(m *v1.VolumeMount, c *v1.Container) string {
	if m.SubPathExpr != "" {
		return fmt.Sprintf("subPathExpr %q of volume %q for container %q", m.SubPathExpr, m.Name, c.Name)
	}
	return fmt.Sprintf("subPath %q of volume %q for container %q", m.SubPath, m.Name, c.Name)
}

func volumeNamed(p *v1.Pod, name string) *v1.Volume {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return &p.Spec.Volumes[i]
		}
	}
	return nil
}

// recursiveReadOnly follows the API's documentation of recursiveReadOnly: IfPossible
// depends on the runtime's support, Enabled requires it.
func recursiveReadOnly(m *v1.VolumeMount, supported bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *m.MountPropagation)
	}
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
	}
}

func propagationOf(m *v1.VolumeMount, c *v1.Container) (v1.MountPropagationMode, error) {
	if m.MountPropagation == nil {
		return "", nil
	}
	switch mode := *m.MountPropagation; mode {
	case v1.MountPropagationNone:
		return "", nil
	case v1.MountPropagationHostToContainer:
		return mode, nil
	case v1.MountPropagationBidirectional:
		// Validation checks this, too. It is checked again because what such a container
		// mounts appears on the host.
		if s := c.SecurityContext; s == nil || s.Privileged == nil || !*s.Privileged {
			return "", fmt.Errorf("volume %q: Bidirectional mount propagation is available only to privileged containers, and %q is not", m.Name, c.Name)
		}
		return mode, nil
	default:
		return "", fmt.Errorf("invalid MountPropagation mode: %q", mode)
	}
}
