package volumes

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// projections returns the kind of volumes that project several sources into one
// directory, in memory since a Secret may be among them. If two sources have the same
// path, the later one wins, as in the kubelet.
func projections(memory *tmpfs) kind {
	return liveKind("kubernetes.io/projected", func(s *v1.VolumeSource) bool { return s.Projected != nil }, &liveDriver{
		memory: memory,
		collect: func(t target) (files, error) {
			out, bundles := files{}, 0
			var errs []error
			for i := range t.volume.Projected.Sources {
				if err := out.addProjection(t, i); err != nil {
					errs = append(errs, err)
				}
				// Each source builds its trust bundle anew, whereas texts of objects are shared. A
				// volume with a thousand bundles must not fill the memory before its size is checked.
				if s := t.volume.Projected.Sources[i].ClusterTrustBundle; s != nil {
					bundles += len(out[path.Clean(s.Path)].Data)
				}
				if bundles > maxLiveBytes {
					return nil, tooLarge(bundles)
				}
			}
			return out, utilerrors.NewAggregate(errs)
		},
	})
}

func (f files) addProjection(t target, index int) error {
	s, mode, user := &t.volume.Projected.Sources[index], t.volume.Projected.DefaultMode, t.volume.Projected.DefaultUser
	switch {
	case s.ConfigMap != nil:
		return f.addConfigMap(t, keyProjection{s.ConfigMap.Name, s.ConfigMap.Items, mode, user, s.ConfigMap.Optional})
	case s.Secret != nil:
		return f.addSecret(t, keyProjection{s.Secret.Name, s.Secret.Items, mode, user, s.Secret.Optional})
	case s.DownwardAPI != nil:
		return f.addDownwardAPI(t, s.DownwardAPI.Items, mode, user)
	case s.ServiceAccountToken != nil:
		return f.addToken(t, s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		return f.addTrustBundle(t, s.ClusterTrustBundle, mode)
	case s.PodCertificate != nil:
		return f.addPodCertificate(t, index, s.PodCertificate, mode)
	}
	return nil
}

func noAPIServer(source, what string) error {
	return fmt.Errorf("cannot project %s: this node has no apiserver, which %s", source, what)
}
