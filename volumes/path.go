package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Path returns where the content of one of the pod's volumes is on the host. Ensure must
// have reported the volumes as ready. The content is untrusted: containers may have
// planted symbolic links in it.
func (m *Mounter) Path(p *v1.Pod, volume string) (string, error) {
	v := volumeNamed(p, volume)
	if v == nil {
		return "", fmt.Errorf("the pod has no volume %q", volume)
	}
	k, t, err := m.resolve(p, v)
	if err != nil {
		return "", err
	}
	if path := k.path(t); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("volume %q is not on the node before a container mounts it", volume)
}

// PodDir returns <root-dir>/pods/<uid> with the root resolved. It need not exist.
func (m *Mounter) PodDir(uid pod.UID) string { return m.dirs.Pod(uid) }
