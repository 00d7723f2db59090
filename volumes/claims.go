package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Claims resolves claims to PersistentVolumes.
type Claims interface {
	// Claim returns the binding of a volume with a claim (pod.ClaimName); the error
	// says why it is not bound. It must not block.
	Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error)
	// AwaitClaim is called before Claim when a volume is about to be set up. It may have
	// the claim read, and blocks until that is done or ctx ends.
	AwaitClaim(ctx context.Context, p *v1.Pod, v *v1.Volume)
	// Use is called before a pod uses what Claim returned, and may reject it. isGone says
	// whether another pod has nothing on the node any more. Use may block on the disk.
	Use(b pod.BoundVolume, uid pod.UID, isGone func(pod.UID) bool) error
}

// noClaims is used if Options.Claims is nil.
type noClaims struct{}

func (noClaims) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	return pod.BoundVolume{}, fmt.Errorf("persistentvolumeclaim %q %w", pod.ClaimName(p, v), pod.ErrNotFound)
}

func (noClaims) AwaitClaim(context.Context, *v1.Pod, *v1.Volume) {}

func (noClaims) Use(pod.BoundVolume, pod.UID, func(pod.UID) bool) error { return nil }

// resolve returns the kind of a volume, or that of the PersistentVolume that its claim is
// bound to. For a volume that is set up, a later change of the binding is ignored.
func (m *Mounter) resolve(p *v1.Pod, v *v1.Volume) (*kind, target, error) {
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
	k := m.kindOfPV(b.Volume)
	if k == nil {
		return nil, target{}, fmt.Errorf("podd cannot use PersistentVolume %s: it is of kind %s", b.Volume.Name, sourceName(&b.Volume.Spec.PersistentVolumeSource))
	}
	t := m.targetFor(p, v, k)
	t.bound = &b
	return k, t, nil
}

// kindOfPV returns the kind of a PersistentVolume, or nil.
func (m *Mounter) kindOfPV(v *v1.PersistentVolume) *kind {
	for i := range m.kinds {
		if m.kinds[i].handlesPV != nil && m.kinds[i].handlesPV(&v.Spec.PersistentVolumeSource) {
			return &m.kinds[i]
		}
	}
	return nil
}

// checkClaimUse checks whether the pod may use the PersistentVolume of its claim, with the
// volumeMode that its containers ask for.
func (m *Mounter) checkClaimUse(k *kind, t target) error {
	if err := checkMode(t); err != nil {
		return err
	}
	if t.bound.Block() && !k.supportsBlock {
		return fmt.Errorf("PersistentVolume %s has volumeMode Block, which volumes of kind %s cannot have", t.bound.Volume.Name,
			sourceName(&t.bound.Volume.Spec.PersistentVolumeSource))
	}
	return m.options.Claims.Use(*t.bound, t.pod.UID, m.isGone)
}

// isGone says whether a pod has nothing on disk, or has completed.
func (m *Mounter) isGone(uid pod.UID) bool {
	m.mu.Lock()
	released := m.stateOf(uid).released
	m.mu.Unlock()
	if released || safeName("pod UID", string(uid)) != nil {
		return true
	}
	_, err := os.Lstat(m.dirs.Pod(uid))
	return errors.Is(err, fs.ErrNotExist)
}

// checkMode rejects, in upstream's words, volumeMounts of a block volume and
// volumeDevices of a file system.
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

// boundOf returns the binding of a volume that is set up.
func (m *Mounter) boundOf(uid pod.UID, volume string) (pod.BoundVolume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.stateOf(uid).bound[volume]
	return b, ok
}

// Bound returns the binding of one of the pod's volumes. It is nil for a volume without a
// claim, and for an unbound claim.
func (m *Mounter) Bound(p *v1.Pod, volume string) *pod.BoundVolume {
	v := volumeNamed(p, volume)
	if v == nil || pod.ClaimName(p, v) == "" {
		return nil
	}
	if _, t, err := m.resolve(p, v); err == nil {
		return t.bound
	}
	return nil
}

// Devices returns the devices of one of the pod's containers: those of its
// volumeDevices. Ensure must have reported the volumes as ready. Errors are
// *pod.ReasonError with CreateContainerConfigError.
func (m *Mounter) Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error) {
	var all []pod.Device
	for i := range c.VolumeDevices {
		wanted := &c.VolumeDevices[i]
		v := volumeNamed(p, wanted.Name)
		if v == nil {
			return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, fmt.Errorf("cannot find volume %q to pass into container %q", wanted.Name, c.Name))
		}
		k, t, err := m.resolve(p, v)
		if err == nil && t.bound == nil {
			err = fmt.Errorf("volume %q is not a block device", wanted.Name)
		}
		if err != nil {
			return nil, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
		}
		all = append(all, pod.Device{HostPath: k.path(t), ContainerPath: wanted.DevicePath, ReadOnly: t.readOnly()})
	}
	return all, nil
}
