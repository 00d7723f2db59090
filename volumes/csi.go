package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podfs"
)

// csiPlugin is upstream's name.
const csiPlugin = "kubernetes.io/csi"

// CSI sets up and tears down the volumes of CSI drivers.
type CSI interface {
	// SetUp sets up a volume, as driver.setUp does; podOwns says that the caller must apply
	// the pod's fsGroup to its files.
	SetUp(ctx context.Context, v pod.CSIVolume) (podOwns bool, err error)
	// Path returns where SetUp has published the volume. It is pure.
	Path(v pod.CSIVolume) string
	// Adopt says that an earlier podd may have set up this volume of a running pod. It is
	// called again when facts that it lacked may have become known. It must not block.
	Adopt(v pod.CSIVolume)
	// Labelled says that SetUp has mounted the volume with the SELinux label of its pod.
	Labelled(v pod.CSIVolume) bool
	// TearDown makes the driver unpublish the volume of a directory, as
	// kind.externalUnmount does.
	TearDown(ctx context.Context, dir string) error
	// Stats asks the driver for the usage of the volume of a directory, as
	// Mounter.Stats does.
	Stats(ctx context.Context, dir string) (pod.VolumeStats, error)
}

// csiVolume is a volume that a CSI driver publishes, inline or of a PersistentVolume.
type csiVolume struct{ csi CSI }

func csiVolumes(c CSI) kind {
	return kind{
		plugin: csiPlugin, managed: true, mayBlock: true, supportsBlock: true,
		handles:         func(s *v1.VolumeSource) bool { return s.CSI != nil },
		handlesPV:       func(s *v1.PersistentVolumeSource) bool { return s.CSI != nil },
		path:            func(t target) string { return c.Path(csiVolumeOf(t)) },
		labelled:        func(t target) bool { return c.Labelled(csiVolumeOf(t)) },
		driver:          csiVolume{c},
		externalUnmount: c.TearDown,
		stats:           c.Stats,
	}
}

// csiVolumeOf converts a target for package csi.
func csiVolumeOf(t target) pod.CSIVolume {
	v := pod.CSIVolume{Pod: t.pod, Name: t.volume.Name, PodVolume: t.volume.Name, Dir: t.dir, Inline: t.volume.CSI, ReadOnly: t.readOnly()}
	if t.bound != nil {
		v.Name, v.Persistent = t.bound.Volume.Name, t.bound.Volume
		if t.bound.Cluster {
			v.Claim = t.bound.Claim
		}
	}
	return v
}

// setUp makes the driver publish the volume, and applies the pod's fsGroup unless the
// driver does.
func (d csiVolume) setUp(ctx context.Context, t target) error {
	v := csiVolumeOf(t)
	podOwns, err := d.csi.SetUp(ctx, v)
	if err != nil || !podOwns {
		return err
	}
	return t.fsGroups.apply(ctx, t, d.csi.Path(v))
}

// refresh does nothing: a driver is called again only if it asks for that
// (requiresRepublish), independently of container restarts.
func (csiVolume) refresh(context.Context, target) error { return nil }

// tearDown has nothing to do after externalUnmount.
func (csiVolume) tearDown(context.Context, string) error { return nil }

// Stats returns the usage of one of the pod's volumes as its driver reports it. It
// blocks as long as a CSI driver may take, 2 minutes. The error is pod.ErrNoStats for
// volumes that must be measured through their file system.
func (m *Mounter) Stats(ctx context.Context, p *v1.Pod, volume string) (pod.VolumeStats, error) {
	v := volumeNamed(p, volume)
	if v == nil {
		return pod.VolumeStats{}, fmt.Errorf("the pod has no volume %q", volume)
	}
	k, t, err := m.resolve(p, v)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	if k.stats == nil {
		return pod.VolumeStats{}, pod.ErrNoStats
	}
	return k.stats(ctx, t.dir)
}

// DriverOf returns the name of the CSI driver of one of the pod's volumes. It is "" for a
// volume of another kind and for an unknown volume. It does not block.
func (m *Mounter) DriverOf(p *v1.Pod, volume string) string {
	v := volumeNamed(p, volume)
	if v == nil {
		return ""
	}
	k, t, err := m.resolve(p, v)
	if err != nil || k.plugin != csiPlugin {
		return ""
	}
	of := csiVolumeOf(t)
	return of.Driver()
}

// unmountExternal calls the externalUnmount of the pod's volumes, for kinds that have one. It
// returns the directories of the volumes that could not be unmounted.
func (m *Mounter) unmountExternal(ctx context.Context, uid pod.UID) (kept []string, err error) {
	var errs []error
	for i := range m.kinds {
		if m.kinds[i].externalUnmount == nil {
			continue
		}
		entries, err := os.ReadDir(m.dirs.Volume(uid, m.kinds[i].plugin, ""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			dir := m.dirs.Volume(uid, m.kinds[i].plugin, e.Name())
			if err := m.kinds[i].externalUnmount(ctx, dir); err != nil {
				kept = append(kept, dir)
				errs = append(errs, fmt.Errorf("unmount volume %q: %w", e.Name(), err))
			}
		}
	}
	return kept, errors.Join(errs...)
}

// adoptCSI calls CSI.Adopt for those of the pod's CSI volumes that are known.
func (m *Mounter) adoptCSI(p *v1.Pod) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.CSI == nil && pod.ClaimName(p, v) == "" {
			continue
		}
		if k, t, err := m.resolve(p, v); err == nil && k.plugin == csiPlugin {
			m.options.CSI.Adopt(csiVolumeOf(t))
		}
	}
}

// unmountSubPaths unmounts the pod's subPaths, which would keep its volumes busy when
// external drivers unmount them.
func (m *Mounter) unmountSubPaths(ctx context.Context, uid pod.UID) error {
	if dir := podfs.SubPathsIn(m.dirs.Pod(uid)); exists(dir) {
		return m.unmountBelow(ctx, dir, nil)
	}
	return nil
}

// noCSI is used if Options.CSI is nil.
type noCSI struct{}

func (noCSI) SetUp(_ context.Context, v pod.CSIVolume) (bool, error) {
	return false, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", v.Driver())
}

func (noCSI) Path(v pod.CSIVolume) string { return filepath.Join(v.Dir, "mount") }

func (noCSI) Adopt(pod.CSIVolume) {}

func (noCSI) Labelled(pod.CSIVolume) bool { return false }

func (noCSI) Stats(context.Context, string) (pod.VolumeStats, error) {
	return pod.VolumeStats{}, errors.New("no CSI drivers are registered")
}

func (noCSI) TearDown(_ context.Context, dir string) error {
	if !exists(filepath.Join(dir, "vol_data.json")) {
		return nil
	}
	return errors.New("a CSI driver has mounted it, and must unmount it: run podd with the driver until the volume is gone")
}
