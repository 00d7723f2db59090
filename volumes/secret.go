package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// secrets returns the kind of volumes with a Secret's keys, which never reach a disk.
func secrets(memory *tmpfs) kind {
	return liveKind("kubernetes.io/secret", func(s *v1.VolumeSource) bool { return s.Secret != nil }, &liveDriver{
		memory: memory,
		collect: func(t target) (files, error) {
			s, out := t.volume.Secret, files{}
			return out, out.addSecret(t, keyProjection{s.SecretName, s.Items, s.DefaultMode, s.DefaultUser, s.Optional})
		},
	})
}

func (f files) addSecret(t target, k keyProjection) error {
	object, err := t.sources.objects.Secret(t.pod, k.object)
	if k.mayBeMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(k.items) == 0 {
		for name, data := range object.Data {
			f.put(name, data, k.mode)
			f.own(t, name, k.user)
		}
		return nil
	}
	for i := range k.items {
		item := &k.items[i]
		data, ok := object.Data[item.Key]
		switch {
		case ok:
			f.put(item.Path, data, k.mode, item.Mode)
			f.own(t, item.Path, k.user, item.User)
		case !k.isOptional():
			return fmt.Errorf("references non-existent secret key: %s", item.Key)
		}
	}
	return nil
}
