package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Claims knows which PersistentVolumes claims have.
type Claims interface {
	// Claim is what a volume that has a claim (pod.ClaimName) is bound to; the error
	// says why it is not. It must not block.
	Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error)
	// Use is called before a pod uses what Claim returned, and may refuse that. left
	// says that another pod has nothing on the node any more. It may take as long as
	// a disk does.
	Use(b pod.BoundVolume, uid pod.UID, left func(pod.UID) bool) error
}

// noClaims stands for Options.Claims on a node that reads none.
type noClaims struct{}

func (noClaims) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	return pod.BoundVolume{}, fmt.Errorf("persistentvolumeclaim %q %w", pod.ClaimName(p, v), pod.ErrNotFound)
}

func (noClaims) Use(pod.BoundVolume, pod.UID, func(pod.UID) bool) error { return nil }

// find finds the kind of a volume: its own, or that of the PersistentVolume which
// its claim has. A volume that is set up stays what it is.
func (m *Mounter) find(p *v1.Pod, v *v1.Volume) (*kind, target, error) {
	if pod.ClaimName(p, v) == "" {
		k := m.kindOf(v)
		if k == nil {
			return nil, target{}, fmt.Errorf("podd has no volumes of kind %s yet", sourceName(&v.VolumeSource))
		}
		return k, m.targetFor(p, v, k), nil
	}
	b, known := m.boundOf(p.UID, v.Name)
	if !known {
		var err error
		if b, err = m.options.Claims.Claim(p, v); err != nil {
			return nil, target{}, err
		}
	}
	k := m.kindBehind(b.Volume)
	if k == nil {
		return nil, target{}, fmt.Errorf("podd cannot use PersistentVolume %s: it is of kind %s", b.Volume.Name, sourceName(&b.Volume.Spec.PersistentVolumeSource))
	}
	t := m.targetFor(p, v, k)
	t.bound = &b
	return k, t, nil
}

// kindBehind finds the kind of a PersistentVolume, or nil.
func (m *Mounter) kindBehind(v *v1.PersistentVolume) *kind {
	for i := range m.kinds {
		if m.kinds[i].behind != nil && m.kinds[i].behind(&v.Spec.PersistentVolumeSource) {
			return &m.kinds[i]
		}
	}
	return nil
}

// mayUse says whether the pod may use the volume that a claim has, in the way in
// which its containers do.
func (m *Mounter) mayUse(k *kind, t target) error {
	if err := checkMode(t); err != nil {
		return err
	}
	if t.bound.Block() && !k.blocks {
		return fmt.Errorf("PersistentVolume %s has volumeMode Block, which volumes of kind %s cannot have", t.bound.Volume.Name,
			sourceName(&t.bound.Volume.Spec.PersistentVolumeSource))
	}
	return m.options.Claims.Use(*t.bound, t.pod.UID, m.left)
}

// left says that nothing of a pod is on disk, or that it has completed.
func (m *Mounter) left(uid pod.UID) bool {
	m.mu.Lock()
	released := m.released[uid]
	m.mu.Unlock()
	if released || safeName("pod UID", string(uid)) != nil {
		return true
	}
	_, err := os.Lstat(m.dirs.Pod(uid))
	return errors.Is(err, fs.ErrNotExist)
}

// checkMode refuses in upstream's words what containers would do with the wrong kind
// of volume.
func checkMode(t target) error {
	name, block := t.volume.Name, t.bound.Block()
	for c := range pod.ContainerSpecs(&t.pod.Spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == name && block {
				return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", name)
			}
		}
		for i := range c.VolumeDevices {
			if c.VolumeDevices[i].Name == name && !block {
				return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", name)
			}
		}
	}
	return nil
}

// boundOf is what a volume that is set up is bound to.
func (m *Mounter) boundOf(uid pod.UID, volume string) (pod.BoundVolume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.bound[uid][volume]
	return b, ok
}

// Bound is what one of the pod's volumes is bound to, as far as that is known: nil
// for a volume without a claim, and for one whose claim has no volume.
func (m *Mounter) Bound(p *v1.Pod, volume string) *pod.BoundVolume {
	v := volumeNamed(p, volume)
	if v == nil || pod.ClaimName(p, v) == "" {
		return nil
	}
	if _, t, err := m.find(p, v); err == nil {
		return t.bound
	}
	return nil
}

// Devices says which devices one of the pod's containers has: those of its
// volumeDevices. Ensure must have said that they are ready. Errors are
// *pod.ReasonError with CreateContainerConfigError.
func (m *Mounter) Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error) {
	var all []pod.Device
	for i := range c.VolumeDevices {
		wanted := &c.VolumeDevices[i]
		v := volumeNamed(p, wanted.Name)
		if v == nil {
			return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, fmt.Errorf("cannot find volume %q to pass into container %q", wanted.Name, c.Name))
		}
		k, t, err := m.find(p, v)
		if err == nil && t.bound == nil {
			err = fmt.Errorf("volume %q is no block device", wanted.Name)
		}
		if err != nil {
			return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
		}
		all = append(all, pod.Device{HostPath: k.path(t), ContainerPath: wanted.DevicePath, ReadOnly: t.readOnly()})
	}
	return all, nil
}
