package volumes

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// imageVolume is the content of an image, read-only. The runtime mounts it when it
// creates a container, so there is never anything below the pod's directory; package
// images pulls it for each container that mounts it.
type imageVolume struct{}

func imageVolumes() kind {
	return kind{
		plugin:  "kubernetes.io/image",
		handles: func(s *v1.VolumeSource) bool { return s.Image != nil },
		path:    func(target) string { return "" },
		driver:  imageVolume{},
	}
}

func (imageVolume) setUp(context.Context, target) error { return nil }

func (imageVolume) refresh(context.Context, target) error { return nil }

func (imageVolume) tearDown(context.Context, string) error { return nil }

// imageMount is the mount of an image volume that the runtime is asked for. The runtime
// resolves the subPath within the image, which must exist.
func imageMount(v *v1.Volume, subPath string) pod.ImageMount {
	return pod.ImageMount{Volume: v.Name, Reference: v.Image.Reference, SubPath: subPath}
}
