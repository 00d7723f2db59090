package volumes

import (
	"context"
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Mounts says how the pod's volumes are bound into one of its containers, in
// the order of its volumeMounts. subPaths are theirs, by the same index, with
// variables expanded; nil for none. Ensure must have said that they are ready.
// subPaths are made when missing and bound below the pod's directory, which is
// why this can fail for reasons of the disk; calling it again for a restarted
// container is right and reuses what still fits. Errors are *pod.ReasonError with
// CreateContainerConfigError.
func (m *Mounter) Mounts(p *v1.Pod, c *v1.Container, subPaths []string) ([]pod.Mount, error) {
	if len(c.VolumeMounts) == 0 {
		return nil, nil
	}
	unlock, err := m.lock(context.Background(), p.UID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	mounts := make([]pod.Mount, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		sub := ""
		if i < len(subPaths) {
			sub = subPaths[i]
		}
		mount, err := m.mountOf(p, c, i, sub)
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
	var k *kind
	if volume != nil {
		k = m.kindOf(volume)
	}
	if k == nil {
		return pod.Mount{}, fmt.Errorf("cannot find volume %q to mount into container %q", wanted.Name, c.Name)
	}
	t := m.targetFor(p, volume, k)
	hostPath := k.path(t)

	sub, err := checkSubPath(sub)
	if err != nil {
		return pod.Mount{}, err
	}
	var image pod.ImageMount
	switch {
	case volume.Image != nil:
		image = imageMount(volume, sub)
	case sub != "":
		hostPath, err = m.bindSubPath(subPath{
			volume: t, content: hostPath, path: sub, container: c.Name, index: index,
		})
		if err != nil {
			return pod.Mount{}, fmt.Errorf("subPath %q of volume %q for container %q: %w", sub, wanted.Name, c.Name, err)
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
	// What is elsewhere on the host is the administrator's to share or not.
	if propagation != "" && strings.HasPrefix(hostPath, m.PodDir(p.UID)+"/") {
		if err := shareMounts(hostPath); err != nil {
			return pod.Mount{}, err
		}
	}
	return pod.Mount{
		HostPath:          hostPath,
		Image:             image,
		ContainerPath:     path.Join("/", wanted.MountPath),
		ReadOnly:          wanted.ReadOnly || k.live || volume.Image != nil,
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		SELinuxRelabel:    k.managed,
	}, nil
}

func volumeNamed(p *v1.Pod, name string) *v1.Volume {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return &p.Spec.Volumes[i]
		}
	}
	return nil
}

// recursiveReadOnly decides as upstream documents for recursiveReadOnly:
// IfPossible asks the runtime, Enabled insists.
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
		// Validation says so too. What such a container mounts appears on the
		// host, so the rule is worth a second lock.
		if s := c.SecurityContext; s == nil || s.Privileged == nil || !*s.Privileged {
			return "", fmt.Errorf("volume %q: Bidirectional mount propagation is available only to privileged containers, and %q is not", m.Name, c.Name)
		}
		return mode, nil
	default:
		return "", fmt.Errorf("invalid MountPropagation mode: %q", mode)
	}
}
