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

// CSI has the volumes that CSI drivers make.
type CSI interface {
	// SetUp makes a volume, as a driver's setUp does; podOwns says that its files are
	// to be given to the pod's fsGroup.
	SetUp(ctx context.Context, v pod.CSIVolume) (podOwns bool, err error)
	// Path is where it is then. It is pure.
	Path(v pod.CSIVolume) string
	// Follow says that an earlier podd may have set a volume up for a pod that is
	// still there. It must not block.
	Follow(v pod.CSIVolume)
	// TearDown has the driver give back what it made for a directory, as a release
	// does.
	TearDown(ctx context.Context, dir string) error
	// Stats asks the driver how full the volume of a directory is, as Mounter.Stats
	// does.
	Stats(ctx context.Context, dir string) (pod.VolumeStats, error)
}

// csiVolume is a volume of a CSI driver, inline or of a PersistentVolume: the driver
// makes it and takes it away.
type csiVolume struct{ csi CSI }

func csiVolumes(c CSI) kind {
	return kind{
		plugin: csiPlugin, managed: true, waits: true, blocks: true,
		handles: func(s *v1.VolumeSource) bool { return s.CSI != nil },
		behind:  func(s *v1.PersistentVolumeSource) bool { return s.CSI != nil },
		path:    func(t target) string { return c.Path(ofDriver(t)) },
		driver:  csiVolume{c},
	}
}

// ofDriver is the volume as its driver's.
func ofDriver(t target) pod.CSIVolume {
	v := pod.CSIVolume{Pod: t.pod, Name: t.volume.Name, Dir: t.dir, Inline: t.volume.CSI, ReadOnly: t.readOnly()}
	if t.bound != nil {
		v.Name, v.Persistent = t.bound.Volume.Name, t.bound.Volume
	}
	return v
}

// setUp makes a driver's volume, and gives it to the pod's fsGroup where the driver
// does not.
func (d csiVolume) setUp(ctx context.Context, t target) error {
	v := ofDriver(t)
	podOwns, err := d.csi.SetUp(ctx, v)
	if err != nil || !podOwns {
		return err
	}
	return t.owner.own(ctx, t, d.csi.Path(v))
}

// refresh leaves the volume as it is: its driver is asked once, and again where it
// wants that (requiresRepublish), which is not a restart's matter.
func (csiVolume) refresh(context.Context, target) error { return nil }

// tearDown has nothing to do after release.
func (csiVolume) tearDown(context.Context, string) error { return nil }

func (d csiVolume) release(ctx context.Context, dir string) error {
	return d.csi.TearDown(ctx, dir)
}

func (d csiVolume) stats(ctx context.Context, dir string) (pod.VolumeStats, error) {
	return d.csi.Stats(ctx, dir)
}

// measurer is a driver whose volumes somebody else than their file system measures.
type measurer interface {
	stats(ctx context.Context, dir string) (pod.VolumeStats, error)
}

// Stats are what the driver of one of the pod's volumes says of it. It blocks as long
// as a CSI driver may take, 2 minutes. The error is pod.ErrNoStats for volumes that
// nobody but their file system measures.
func (m *Mounter) Stats(ctx context.Context, p *v1.Pod, volume string) (pod.VolumeStats, error) {
	v := volumeNamed(p, volume)
	if v == nil {
		return pod.VolumeStats{}, fmt.Errorf("the pod has no volume %q", volume)
	}
	k, t, err := m.find(p, v)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	d, ok := k.driver.(measurer)
	if !ok {
		return pod.VolumeStats{}, pod.ErrNoStats
	}
	return d.stats(ctx, t.dir)
}

// DriverOf names the CSI driver of one of the pod's volumes, "" for a volume of another
// kind and one that is not known. It does not block.
func (m *Mounter) DriverOf(p *v1.Pod, volume string) string {
	v := volumeNamed(p, volume)
	if v == nil {
		return ""
	}
	k, t, err := m.find(p, v)
	if err != nil || k.plugin != csiPlugin {
		return ""
	}
	of := ofDriver(t)
	return of.Driver()
}

// releaser is a driver that somebody else mounts for: only that one may unmount.
type releaser interface {
	// release has the volume of a directory taken away, before anything is unmounted
	// but subPaths of the pod. After an error nothing at or below it is unmounted or
	// deleted.
	release(ctx context.Context, dir string) error
}

// release has those who mounted volumes of the pod take them away, and returns the
// directories of those that did not.
func (m *Mounter) release(ctx context.Context, uid pod.UID) (kept []string, err error) {
	var errs []error
	for i := range m.kinds {
		r, ok := m.kinds[i].driver.(releaser)
		if !ok {
			continue
		}
		entries, err := os.ReadDir(m.dirs.Volume(uid, m.kinds[i].plugin, ""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			dir := m.dirs.Volume(uid, m.kinds[i].plugin, e.Name())
			if err := r.release(ctx, dir); err != nil {
				kept = append(kept, dir)
				errs = append(errs, fmt.Errorf("unmount volume %q: %w", e.Name(), err))
			}
		}
	}
	return kept, errors.Join(errs...)
}

// followCSI tells of the pod's volumes of CSI drivers.
func (m *Mounter) followCSI(p *v1.Pod) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.CSI == nil && pod.ClaimName(p, v) == "" {
			continue
		}
		if k, t, err := m.find(p, v); err == nil && k.plugin == csiPlugin {
			m.options.CSI.Follow(ofDriver(t))
		}
	}
}

// unmountSubPaths unmounts the pod's subPaths: they keep volumes busy for whoever
// has mounted those.
func (m *Mounter) unmountSubPaths(ctx context.Context, uid pod.UID) error {
	if dir := podfs.SubPathsIn(m.dirs.Pod(uid)); exists(dir) {
		return m.unmountBelow(ctx, dir, nil)
	}
	return nil
}

// noCSI stands for Options.CSI where nobody registers drivers.
type noCSI struct{}

func (noCSI) SetUp(_ context.Context, v pod.CSIVolume) (bool, error) {
	return false, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", v.Driver())
}

func (noCSI) Path(v pod.CSIVolume) string { return filepath.Join(v.Dir, "mount") }

func (noCSI) Follow(pod.CSIVolume) {}

func (noCSI) Stats(context.Context, string) (pod.VolumeStats, error) {
	return pod.VolumeStats{}, errors.New("nobody registers CSI drivers")
}

func (noCSI) TearDown(_ context.Context, dir string) error {
	if !exists(filepath.Join(dir, "vol_data.json")) {
		return nil
	}
	return errors.New("a CSI driver has mounted it, and must unmount it: run podd with the driver until the volume is gone")
}
