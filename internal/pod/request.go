package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// SandboxRequest asks for a pod's sandbox.
type SandboxRequest struct {
	Pod    *v1.Pod
	Source Source
	// Attempt is 0 for the first sandbox of a UID, and one more for each later one.
	Attempt   uint32
	StartTime time.Time
	// Handler is the runtime's handler for the pod, "" for the default one.
	Handler string
	Inputs  SandboxInputs
}

// ContainerRequest asks for a container in a ready sandbox.
type ContainerRequest struct {
	Pod       *v1.Pod
	Container *v1.Container
	Sandbox   Sandbox
	// Source, StartTime and SandboxInputs make the sandbox's configuration, which CRI
	// requires again with each container.
	Source        Source
	StartTime     time.Time
	SandboxInputs SandboxInputs
	RestartCount  int32
	Image         ImageState
	Inputs        ContainerInputs
	Mounts        []Mount
	Devices       []Device
	// Annotations and CDI come from device plugins.
	Annotations map[string]string
	CDI         []string
	// ContentHashes are recorded with a container that must be recreated when they change; empty
	// for any other.
	ContentHashes ContentHashes
	// podfs fills in the fields below, with the mounts of podd's own files and a
	// RestartCount for which no log is left.

	// LogPath is the log on the host.
	LogPath string
	// TerminationLog is the file on the host where the container may leave a message; empty
	// if it brings its own.
	TerminationLog string
}

// Mount is one mount of a container: of a volume, or of one of podd's files.
type Mount struct {
	// HostPath is the path to bind; empty for an Image.
	HostPath string
	// Image is the image that the runtime mounts instead, if Image.Volume is set.
	Image         ImageMount
	ContainerPath string
	ReadOnly      bool
	// RecursiveReadOnly asks for MS_RDONLY on submounts too.
	RecursiveReadOnly bool
	// Propagation is "" for None.
	Propagation v1.MountPropagationMode
	// SELinuxRelabel asks the runtime to relabel the content.
	SELinuxRelabel bool
}

// Device is a device of the host that a container gets.
type Device struct {
	// HostPath is the device's node, or a link to it.
	HostPath      string
	ContainerPath string
	// ReadOnly says that the container may not write to it, nor make another node of it.
	ReadOnly bool
	// Permissions are some of r, w and m; empty for those that ReadOnly implies.
	Permissions string
}

// ContainerDevices is what a container needs in order to use the devices of device plugins.
type ContainerDevices struct {
	// Ready says that the container has its devices, if it requests any. Otherwise Reason
	// and Message say what it waits for: ContainerCreating while they are being allocated.
	Ready           bool
	Reason, Message string
	// Env are variables that the container's own variables override.
	Env         map[string]string
	Mounts      []Mount
	Devices     []Device
	Annotations map[string]string
	// CDI are the qualified names of devices of the Container Device Interface.
	CDI []string
}

// ImageMount is a volume with the content of an image.
type ImageMount struct {
	// Volume is the pod's name for the volume. ImageState.Volumes maps it to the runtime's
	// name for the image.
	Volume string
	// Reference is the image as the volume names it.
	Reference string
	// SubPath is a directory of the image, cleaned but not checked yet; empty for the whole
	// image. The runtime resolves it.
	SubPath string
}

// VolumeState is the progress of the set-up of a pod's volumes, at one moment.
type VolumeState struct {
	// Ready says that every volume exists.
	Ready bool
	// Message says what the pod waits for, while they do not.
	Message string
	// RetryAt is when asking again makes sense without being woken; zero for never.
	RetryAt time.Time
}

// ImageState is what images knows, at one moment, about the images that one container
// needs: its own, and those of the image volumes that it mounts.
type ImageState struct {
	// Ready says that the images are there, and that Ref and Volumes are what
	// CreateContainer takes.
	Ready bool
	// Ref is the runtime's ID of the container's image.
	Ref string
	// Volumes are the runtime's IDs of the images that are mounted, by the names
	// of their volumes; nil for none.
	Volumes map[string]string
	// UID and Username are the image's own user; UID is nil if the image names a user by
	// name or none at all.
	UID      *int64
	Username string
	// Reason and Message say why the state is not ready, in the kubelet's words:
	// ContainerCreating while pulling, ErrImagePull, ImagePullBackOff, ErrImageNeverPull,
	// InvalidImageName ….
	Reason  string
	Message string
	// RetryAt is when asking again makes sense without being woken. While a pull is
	// in progress, its end wakes the pod: then RetryAt is zero, or the time when the
	// pull will have taken so long that Message reports its progress.
	RetryAt time.Time
}
