package pod

// Reasons of containers that wait, in the kubelet's words: people and dashboards
// match on them. What decides that a container waits takes its reason from here,
// and so does what reads it.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing" // the same, of a pod with init containers

	ReasonErrImagePull              = "ErrImagePull"
	ReasonImagePullBackOff          = "ImagePullBackOff"
	ReasonErrImageNeverPull         = "ErrImageNeverPull"
	ReasonInvalidImageName          = "InvalidImageName"
	ReasonImageInspectError         = "ImageInspectError"
	ReasonRegistryUnavailable       = "RegistryUnavailable"
	ReasonSignatureValidationFailed = "SignatureValidationFailed"

	ReasonConfigPodSandboxError      = "ConfigPodSandboxError"
	ReasonCreatePodSandboxError      = "CreatePodSandboxError"
	ReasonCreateContainerConfigError = "CreateContainerConfigError"
	ReasonCreateContainerError       = "CreateContainerError"
	ReasonRunContainerError          = "RunContainerError"
	ReasonPostStartHookError         = "PostStartHookError"

	ReasonCrashLoopBackOff        = "CrashLoopBackOff"
	ReasonRestartingAllContainers = "RestartingAllContainers" // of one that ended, too
)

// Reasons of containers that ended: the runtime's words, and the kubelet's for one
// that the runtime lost.
const (
	ReasonCompleted              = "Completed"
	ReasonExitError              = "Error"
	ReasonOOMKilled              = "OOMKilled"
	ReasonContainerStatusUnknown = "ContainerStatusUnknown"
)
