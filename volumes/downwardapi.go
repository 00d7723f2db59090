package volumes

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// downwardAPIs returns the kind of volumes with fields of their pod. They are in memory,
// as in the kubelet: annotations may be as confidential as Secrets.
func downwardAPIs(memory *tmpfs) kind {
	return liveKind("kubernetes.io/downward-api", func(s *v1.VolumeSource) bool { return s.DownwardAPI != nil }, &liveDriver{
		memory: memory,
		collect: func(t target) (files, error) {
			s, out := t.volume.DownwardAPI, files{}
			return out, out.addDownwardAPI(t, s.Items, s.DefaultMode, s.DefaultUser)
		},
	})
}

func (f files) addDownwardAPI(t target, items []v1.DownwardAPIVolumeFile, mode *int32, user *int64) error {
	if t.sources.downward == nil {
		return errors.New("this node does not provide downward API fields")
	}
	var errs []error
	for i := range items {
		item := &items[i]
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = t.sources.downward.Field(t.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = t.sources.downward.Resource(t.pod, item.ResourceFieldRef)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.putText(item.Path, value, mode, item.Mode)
		f.own(t, item.Path, user, item.User)
	}
	return utilerrors.NewAggregate(errs) // upstream's form of several errors
}
