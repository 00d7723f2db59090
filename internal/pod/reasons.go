package pod

// Reasons of waiting containers, in the kubelet's words. Users and dashboards match on
// them. All code that decides that a container waits, or reads that, uses these.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing" // the same, for a pod with init containers

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
	ReasonRestartingAllContainers = "RestartingAllContainers" // also for an exited one
)

// Reasons of terminated containers: the runtime's words, and the kubelet's for a container
// that the runtime has lost.
const (
	ReasonCompleted              = "Completed"
	ReasonExitError              = "Error"
	ReasonOOMKilled              = "OOMKilled"
	ReasonStartError             = "StartError"
	ReasonContainerStatusUnknown = "ContainerStatusUnknown"
)
