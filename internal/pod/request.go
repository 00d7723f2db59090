package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// SandboxRequest asks for a pod's sandbox.
type SandboxRequest struct {
	Pod    *v1.Pod
	Source Source
	// Attempt is 0 for the first sandbox of a UID and one more for each next.
	Attempt   uint32
	StartTime time.Time
}

// ContainerRequest asks for a container in a ready sandbox.
type ContainerRequest struct {
	Pod       *v1.Pod
	Container *v1.Container
	Sandbox   Sandbox
	// Source and StartTime rebuild the sandbox's configuration, which CRI
	// wants again with each container.
	Source       Source
	StartTime    time.Time
	RestartCount int32
	Image        ImageState
	Mounts       []Mount
}

// Mount is one bind mount of a container, from volumes.
type Mount struct {
	HostPath      string
	ContainerPath string
	ReadOnly      bool
	// RecursiveReadOnly asks for MS_RDONLY on submounts too.
	RecursiveReadOnly bool
	// Propagation is "" for None.
	Propagation v1.MountPropagationMode
	// SELinuxRelabel asks the runtime to relabel the content.
	SELinuxRelabel bool
}

// ImageState is what images knows of one container's image, at one moment.
type ImageState struct {
	// Ready: the image is there and Ref is what CreateContainer takes.
	Ready bool
	// Ref is the runtime's image ID.
	Ref string
	// UID and Username are the image's own user; UID is nil when the image
	// names a user by name or none at all.
	UID      *int64
	Username string
	// Reason and Message say why it is not ready, in the kubelet's words:
	// ContainerCreating while pulling, ErrImagePull, ImagePullBackOff,
	// ErrImageNeverPull, InvalidImageName ….
	Reason  string
	Message string
	// RetryAt is when asking again makes sense without being woken; while a
	// pull is under way, whose end wakes the pod, it is zero, or when the pull
	// will have taken so long that Message says how far it is.
	RetryAt time.Time
}
