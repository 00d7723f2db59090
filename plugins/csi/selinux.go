package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
	"podd/internal/selinux"
)

// Labelled says that SetUp has mounted a volume with the label of its pod, so that the
// runtime need not relabel its files. It reads a file, but only on a node with SELinux.
func (v *Volumes) Labelled(volume pod.CSIVolume) bool {
	if v.selinux == nil {
		return false
	}
	r, err := readRecord(volume.Dir)
	return err == nil && r.SELinuxLabel != ""
}

// configureSELinux sets whether the driver mounts volumes with labels, and which label this
// volume needs. As upstream, only persistent volumes with a file system have one.
func (p *plan) configureSELinux(labels *selinux.Labels, doc *storagev1.CSIDriver, volume *pod.CSIVolume) {
	if labels == nil || volume.Persistent == nil || p.Block || doc == nil || doc.Spec.SELinuxMount == nil || !*doc.Spec.SELinuxMount {
		return
	}
	p.mountsLabel = true
	p.label, p.labelError = labels.OfVolume(volume.Pod, volume.PodVolume)
}

// mountFlags returns the mount flags for the driver's calls.
func (p *plan) mountFlags() []string {
	if p.SELinuxLabel == "" {
		return p.mountOptions
	}
	return append(slices.Clone(p.mountOptions), selinux.MountOption(p.SELinuxLabel))
}

// chooseLabel decides with which label to mount the volume. The volume's lock is held. A volume
// has at most one label on this node at a time. While other pods use it with another label, this
// pod waits. A volume that is already mounted keeps its label.
func (v *Volumes) chooseLabel(p *plan) error {
	if !p.mountsLabel {
		return nil
	}
	if old, err := readRecord(p.dir); err == nil && old.isMounted(v.boot) {
		p.SELinuxLabel = old.SELinuxLabel
		return nil
	}
	if p.labelError != nil {
		v.metrics.selinuxError(p.labelError, accessModeOf(p.accessModes))
		return p.labelError
	}
	users, err := v.mountedUsers(p)
	if err != nil {
		return err
	}
	for _, r := range users {
		if r.SELinuxLabel != p.label {
			v.awaitLabel(p)
			v.metrics.selinux.volumeErrors.WithLabelValues(p.volumePlugin(), accessModeOf(p.accessModes)).Inc()
			return fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", p.SpecVolID, r.SELinuxLabel, p.label) // upstream's words
		}
	}
	p.SELinuxLabel = p.label
	if p.label != "" && len(users) == 0 {
		v.metrics.selinux.admitted.WithLabelValues(p.volumePlugin(), accessModeOf(p.accessModes)).Inc()
	}
	return nil
}

// awaitLabel makes the next teardown of the volume for another pod wake this pod.
func (v *Volumes) awaitLabel(p *plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.labelWaiting == nil {
		v.labelWaiting = map[string]map[pod.UID]bool{}
	}
	if v.labelWaiting[p.key()] == nil {
		v.labelWaiting[p.key()] = map[pod.UID]bool{}
	}
	v.labelWaiting[p.key()][p.pod.UID] = true
}

// stopAwaitingLabel forgets a pod that no longer waits for any volume.
func (v *Volumes) stopAwaitingLabel(uid pod.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, waiting := range v.labelWaiting {
		if delete(waiting, uid); len(waiting) == 0 {
			delete(v.labelWaiting, key)
		}
	}
}

// wakeLabelWaiting wakes the pods that wait for a volume, which a pod no longer uses.
func (v *Volumes) wakeLabelWaiting(r *record) {
	v.mu.Lock()
	waiting := v.labelWaiting[r.key()]
	delete(v.labelWaiting, r.key())
	v.mu.Unlock()
	for uid := range waiting {
		v.waker.Changed(uid)
	}
}

// mountedUsers returns the records of other pods' mounts of the volume.
func (v *Volumes) mountedUsers(p *plan) ([]*record, error) {
	dirs, err := v.otherUsers(p.record, p.dir)
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, dir := range dirs {
		if r, err := readRecord(dir); err == nil && r.isMounted(v.boot) {
			all = append(all, r)
		}
	}
	return all, nil
}

// isMounted says that podd has called the driver for the volume in this boot. The driver may
// have mounted it.
func (r *record) isMounted(boot string) bool { return r.State != stateIdle && r.Boot == boot }

// unstageOtherLabel unstages a volume that is still staged with another label for an earlier pod.
// The volume's lock is held, and old is the record of the staged volume.
func (v *Volumes) unstageOtherLabel(ctx context.Context, s *session, old *record, p *plan) error {
	users, err := v.mountedUsers(p)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different pod with a different SELinux label", p.SpecVolID) // upstream's words
	}
	return v.unstage(ctx, s, old, p.paths)
}

// volumePlugin is the value of upstream's label volume_plugin.
func (p *plan) volumePlugin() string { return pluginName + "/" + p.driver }

// accessModeOf returns the value of upstream's label access_mode: the mode that allows most.
func accessModeOf(modes []v1.PersistentVolumeAccessMode) string {
	for _, m := range []struct {
		mode v1.PersistentVolumeAccessMode
		name string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			return m.name
		}
	}
	return ""
}

// selinuxError counts a volume whose pod has an invalid label, or several.
func (m *metrics) selinuxError(err error, accessMode string) {
	if _, conflict := errors.AsType[*selinux.ConflictError](err); conflict {
		m.selinux.podErrors.WithLabelValues(accessMode).Inc()
		return
	}
	m.selinux.containerErrors.WithLabelValues(accessMode).Inc()
}
