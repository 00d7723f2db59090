package volumes

import (
	"context"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// kind is one kind of volume. A kind keeps no state of its own: it is asked
// with the volume at hand, and what it made lies on disk or in the mount table.
type kind interface {
	// plugin is upstream's name, which is also the directory's and the
	// metric's: kubernetes.io/empty-dir.
	plugin() string
	// handles says whether the volume is of this kind.
	handles(*v1.VolumeSource) bool
	// setUp makes the volume exist. It is called again at any time.
	setUp(context.Context, target) error
	// path is where the content lies on the host, once setUp has succeeded.
	path(target) string
	// managed says that the content lives and dies with the pod.
	managed() bool
}

// target is the volume that a kind is asked about.
type target struct {
	pod    *v1.Pod
	volume *v1.Volume
	// dir is <pod's directory>/volumes/<plugin>/<name>; a kind that needs a
	// directory of its own makes it there.
	dir string
	// again says that this Mounter has set the volume up before.
	again bool
}

// kindOf finds the kind of a volume, or nil.
func (m *Mounter) kindOf(v *v1.Volume) kind {
	for _, k := range m.kinds {
		if k.handles(&v.VolumeSource) {
			return k
		}
	}
	return nil
}

// sourceName is the manifest's word for a volume's kind ("nfs", "configMap").
func sourceName(source *v1.VolumeSource) string {
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

func (m *Mounter) targetFor(p *v1.Pod, v *v1.Volume, k kind, again bool) target {
	return target{
		pod:    p,
		volume: v,
		dir:    m.podDir(pod.UID(p.UID)) + "/volumes/" + strings.ReplaceAll(k.plugin(), "/", "~") + "/" + v.Name,
		again:  again,
	}
}
