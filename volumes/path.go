package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Path is where the content of one of the pod's volumes is on the host; Ensure
// must have said that it is ready. Whoever reads there reads what containers wrote, and may
// have linked elsewhere.
func (m *Mounter) Path(p *v1.Pod, volume string) (string, error) {
	v := volumeNamed(p, volume)
	if v == nil {
		return "", fmt.Errorf("the pod has no volume %q", volume)
	}
	k, t, err := m.find(p, v)
	if err != nil {
		return "", err
	}
	if path := k.path(t); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("volume %q is not on the node before a container mounts it", volume)
}

// PodDir is <root-dir>/pods/<uid>, the root resolved. It need not exist.
func (m *Mounter) PodDir(uid pod.UID) string { return m.dirs.Pod(uid) }
