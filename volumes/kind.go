package volumes

import (
	"context"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// kinds are those that podd has. A new one is a line here, and a file that has
// its kind value, its driver and nothing of any other.
func kinds(o Options) []kind {
	memory := &tmpfs{}
	return []kind{
		emptyDirs(o.NodeMemory, memory, o.Projects),
		hostPaths(),
		configMaps(),
		secrets(memory),
		downwardAPIs(memory),
		projections(memory),
		imageVolumes(),
		csiVolumes(o.CSI),
		localVolumes(newDevices()),
		nfsVolumes(),
	}
}

// kind is one kind of volume: what it is called, where its content lies, and what
// makes it. It keeps no state: what was made lies on disk or in the mount table.
type kind struct {
	// plugin is upstream's name, which is also the directory's and the metric's:
	// kubernetes.io/empty-dir. No two kinds share one.
	plugin string
	// managed says that the content is for the pod's containers, which may have it
	// relabelled.
	managed bool
	// live says that the content follows objects or the pod while it runs, and is
	// podd's alone to write: containers have it read-only. What cannot be brought up
	// to date serves on as it is.
	live bool
	// waits says that a set-up may wait for what is not podd's own: a server, a driver,
	// somebody's disk. One that does holds up no other volume of its pod.
	waits bool
	// handles says whether a volume is of this kind; nil for what only a
	// PersistentVolume can be. behind says it of a PersistentVolume; nil for what none
	// can be, and blocks that such a volume may be a device (volumeMode Block), which
	// is then at path.
	handles func(*v1.VolumeSource) bool
	behind  func(*v1.PersistentVolumeSource) bool
	blocks  bool
	// path is where the content lies on the host, once setUp has succeeded. It is
	// pure; target.dir for most, and empty for what only the runtime can mount.
	path func(target) string
	driver
}

// driver makes the volumes of a kind, and takes them away. Its methods are called
// beside the syncs, one at a time for each volume; a set-up or refresh in parallel to
// those of other volumes, of the same pod too if the kind waits. Each may take its time: that holds up its own pod alone. Where it waits,
// it should end with ctx, which ends with the pod; what does not is left alone
// until it returns (PendingUnmount). Each may be called again after any outcome, and after
// a crash.
type driver interface {
	// setUp makes the volume exist. The error says why it cannot: it is told as an
	// event of the pod, and setUp is called again after a back-off.
	setUp(ctx context.Context, t target) error
	// refresh brings up to date what this Mounter has set up before: at a later
	// start of the pod's containers.
	refresh(ctx context.Context, t target) error
	// tearDown undoes what setUp made beyond the directory: nothing for most. dir is
	// target.dir; the pod may not be known any more. Every mount below the pod's
	// directory was unmounted before, and the directory is deleted afterwards,
	// whatever the kind. It is called for each volume that has a directory.
	tearDown(ctx context.Context, dir string) error
}

// target is the volume that a kind is asked about.
type target struct {
	pod    *v1.Pod
	volume *v1.Volume
	// dir is <pod's directory>/volumes/<plugin>/<name>; a kind that needs a
	// directory of its own makes it there.
	dir string
	// bound is what the volume's claim has; nil for a volume without one.
	bound *pod.BoundVolume
	// values has what live kinds are made of, and owner changes to the fsGroup.
	values values
	owner  *owner
}

// readOnly says that no container may write to the volume.
func (t target) readOnly() bool {
	if csi := t.volume.CSI; csi != nil {
		return csi.ReadOnly != nil && *csi.ReadOnly
	}
	return t.bound != nil && t.bound.ReadOnly
}

// kindOf finds the kind of a volume without a claim, or nil.
func (m *Mounter) kindOf(v *v1.Volume) *kind {
	for i := range m.kinds {
		if m.kinds[i].handles != nil && m.kinds[i].handles(&v.VolumeSource) {
			return &m.kinds[i]
		}
	}
	return nil
}

// sourceName is the manifest's word for a volume's kind ("nfs", "configMap"); source
// is a pointer to a struct that has a field for each.
func sourceName(source any) string {
	fields := reflect.ValueOf(source).Elem()
	for i := range fields.NumField() {
		if fields.Field(i).IsNil() {
			continue
		}
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		return name
	}
	return "emptyDir"
}

func (m *Mounter) targetFor(p *v1.Pod, v *v1.Volume, k *kind) target {
	return target{
		pod: p, volume: v, dir: m.dirs.Volume(p.UID, k.plugin, v.Name),
		values: values{objects: podObjects{m, p.UID}, downward: m.options.Downward}, owner: m.owner,
	}
}
