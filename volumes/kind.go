package volumes

import (
	"context"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/pod"
	"podd/internal/selinux"
)

// kinds lists the volume kinds that podd supports. To add one, add a line here and a
// file with its kind value and its driver.
func kinds(o Options) []kind {
	memory := &tmpfs{labels: o.SELinux, mountCall: unix.Mount, labelAt: selinux.LabelOf}
	return []kind{
		emptyDirs(o, memory),
		hostPaths(),
		configMaps(),
		secrets(memory),
		downwardAPIs(memory),
		projections(memory),
		imageVolumes(),
		csiVolumes(o.CSI),
		localVolumes(&devices{}),
		nfsVolumes(),
	}
}

// kind is one kind of volume: its name, the location of its content, and its driver.
// It is stateless: all state is on disk or in the mount table.
type kind struct {
	// plugin is upstream's plugin name, such as kubernetes.io/empty-dir, also used for
	// the directory and the metrics. It is unique.
	plugin string
	// managed says that the volume is managed by podd: the runtime may relabel its
	// content for the containers (SELinux), if it is not mounted read-only.
	managed bool
	// labelled says that a volume that was set up is mounted with its pod's SELinux label, so
	// that the runtime need not relabel its content. nil means never.
	labelled func(target) bool
	// live says that the content follows objects or the pod while it runs. Only podd
	// writes to it: containers get it read-only. If an update fails, the last content
	// stays.
	live bool
	// mayBlock says that setUp may wait for something outside podd: a server, a driver,
	// a disk. Such volumes are set up in parallel to the pod's others.
	mayBlock bool
	// handles says whether a volume is of this kind; nil for a kind that exists only as
	// PersistentVolume. handlesPV does the same for a PersistentVolume; nil for a kind
	// that cannot be one. supportsBlock says that volumeMode Block is supported; path is
	// then the device.
	handles       func(*v1.VolumeSource) bool
	handlesPV     func(*v1.PersistentVolumeSource) bool
	supportsBlock bool
	// path returns where the content is on the host once setUp has succeeded. It is pure.
	// Most kinds return target.dir; a kind that only the runtime can mount returns "".
	path func(target) string
	driver
	// isSetUp says, for a live kind, whether an earlier podd has set the volume up. It blocks
	// on nothing but the disk.
	isSetUp func(target) bool
	// externalUnmount has the volume of a directory unmounted by the process that mounted it,
	// because no other process may do so. It is called before anything but the pod's
	// subPaths is unmounted. After an error, nothing at or below dir is unmounted or
	// deleted. It is nil for kinds that podd or the runtime unmounts.
	externalUnmount func(ctx context.Context, dir string) error
	// stats asks for the usage of the volume of a directory; nil for kinds that are measured
	// through their file system.
	stats func(ctx context.Context, dir string) (pod.VolumeStats, error)
}

// driver sets up and tears down the volumes of a kind. Its methods are called outside the
// syncs, one at a time for each volume, in parallel for different pods and, if the kind may
// block, for the volumes of one pod. They may take long, which blocks their own pod only.
// They should return when ctx ends, which happens when the pod ends; podd leaves one that
// does not return alone until it does (PendingUnmount). Each may be called again after any
// outcome and after a crash.
type driver interface {
	// setUp sets the volume up. Its error becomes an event of the pod, and setUp is
	// called again after a backoff.
	setUp(ctx context.Context, t target) error
	// refresh updates a volume that this Mounter has set up before, when containers of the
	// pod start later.
	refresh(ctx context.Context, t target) error
	// tearDown undoes what setUp did besides the directory: nothing for most kinds. dir
	// is target.dir; the pod may be unknown by then. It is called for each volume that
	// has a directory, after every mount below the pod's directory was unmounted and
	// before the directory is deleted.
	tearDown(ctx context.Context, dir string) error
}

// target is the volume that a driver works on.
type target struct {
	pod    *v1.Pod
	volume *v1.Volume
	// dir is <pod's directory>/volumes/<plugin>/<name>; a kind that needs a
	// directory creates it there.
	dir string
	// bound is the binding of the volume's claim; nil for a volume without a claim.
	bound *pod.BoundVolume
	// sources is where live kinds get their content; fsGroups applies the fsGroup.
	sources  contentSources
	fsGroups *fsGroupApplier
}

// readOnly says that the volume is read-only for all containers.
func (t target) readOnly() bool {
	if csi := t.volume.CSI; csi != nil {
		return csi.ReadOnly != nil && *csi.ReadOnly
	}
	return t.bound != nil && t.bound.ReadOnly
}

// kindOf returns the kind of a volume without a claim, or nil.
func (m *Mounter) kindOf(v *v1.Volume) *kind {
	for i := range m.kinds {
		if m.kinds[i].handles != nil && m.kinds[i].handles(&v.VolumeSource) {
			return &m.kinds[i]
		}
	}
	return nil
}

// sourceName returns the name of the source that is set, as in the manifest ("nfs",
// "configMap"); source points to a struct with a field for each.
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
	o := &m.options
	return target{
		pod: p, volume: v, dir: m.dirs.Volume(p.UID, k.plugin, v.Name), fsGroups: m.fsGroups,
		sources: contentSources{objects: podObjects{m}, downward: o.Downward, tokens: o.Tokens, bundles: o.TrustBundles, certificates: o.PodCertificates, users: o.Features.Enabled(features.AtomicWriteVolumeUserFields)},
	}
}
