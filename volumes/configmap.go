package volumes

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// configMaps returns the kind of volumes with a ConfigMap's keys. They are on disk, as
// with the kubelet: they are not secret, and a tmpfs would be charged to no pod.
func configMaps() kind {
	return liveKind("kubernetes.io/configmap", func(s *v1.VolumeSource) bool { return s.ConfigMap != nil }, &liveDriver{
		collect: func(t target) (files, error) {
			s, out := t.volume.ConfigMap, files{}
			return out, out.addConfigMap(t, keyProjection{s.Name, s.Items, s.DefaultMode, s.DefaultUser, s.Optional})
		},
	})
}

// keyProjection says which of an object's keys become files.
type keyProjection struct {
	object   string
	items    []v1.KeyToPath // empty: all keys, by their names
	mode     *int32         // for items without a mode
	user     *int64         // for items without a user
	optional *bool
}

func (k keyProjection) mayBeMissing(err error) bool {
	return k.isOptional() && errors.Is(err, pod.ErrNotFound)
}

func (k keyProjection) isOptional() bool { return k.optional != nil && *k.optional }

func (f files) addConfigMap(t target, k keyProjection) error {
	object, err := t.sources.objects.ConfigMap(t.pod, k.object)
	if k.mayBeMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(k.items) == 0 {
		for name, text := range object.Data {
			f.putText(name, text, k.mode)
			f.own(t, name, k.user)
		}
		for name, data := range object.BinaryData {
			f.put(name, data, k.mode)
			f.own(t, name, k.user)
		}
		return nil
	}
	for i := range k.items {
		item := &k.items[i]
		text, isText := object.Data[item.Key]
		data, isData := object.BinaryData[item.Key]
		switch {
		case isText:
			f.putText(item.Path, text, k.mode, item.Mode)
		case isData:
			f.put(item.Path, data, k.mode, item.Mode)
		case !k.isOptional():
			return fmt.Errorf("configmap references non-existent config key: %s", item.Key)
		default:
			continue
		}
		f.own(t, item.Path, k.user, item.User)
	}
	return nil
}
