package pod

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Observed is the runtime's state of one pod at one time.
type Observed struct {
	UID       UID
	Name      string
	Namespace string
	// Source is read back from the sandbox's annotation; empty if unknown.
	Source Source
	// StartTime is read back from the sandbox's annotation; zero if the pod is not podd's.
	StartTime time.Time
	// TakenOver says that a kubelet made the pod, and that podd has taken over its root
	// directory. StartTime is then when its oldest sandbox was made.
	TakenOver bool
	// Sandboxes, newest (highest attempt) first.
	Sandboxes []Sandbox
	// Containers of all sandboxes, the highest attempts first: for each name the newest
	// comes before the older ones, whatever their times say.
	Containers []Container
	// Foreign is the ID of another podd with sandboxes or containers under this UID, which
	// are not included; empty if there is none.
	Foreign string
	// At is when the observation began.
	At time.Time
}

// Empty says that the runtime has no sandbox or container of this podd's under the pod's
// UID.
func (o Observed) Empty() bool { return len(o.Sandboxes) == 0 && len(o.Containers) == 0 }

// LatestContainer returns the newest container of that name, or nil: the one with the highest
// attempt. A create that seemed lost may succeed after its successor's.
func (o Observed) LatestContainer(name string) *Container {
	var latest *Container
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Name == name && (latest == nil || c.RestartCount > latest.RestartCount) {
			latest = c
		}
	}
	return latest
}

// CurrentSandbox returns the sandbox that the pod's containers belong to, or nil. It is the
// newest, which must be ready, the only ready one, and on the network of the spec.
// Otherwise the pod needs a new one, as in upstream's PodSandboxChanged.
func (o Observed) CurrentSandbox(spec *v1.PodSpec) *Sandbox {
	if o.SandboxProblem(spec) != "" {
		return nil
	}
	return &o.Sandboxes[0]
}

// SandboxProblem says in the kubelet's words why no container can be started in the pod's
// sandboxes (pkg/kubelet/kuberuntime/util, PodSandboxChanged); empty if one can.
func (o Observed) SandboxProblem(spec *v1.PodSpec) string {
	ready := 0
	for i := range o.Sandboxes {
		if o.Sandboxes[i].Ready {
			ready++
		}
	}
	switch {
	case len(o.Sandboxes) == 0:
		return "no pod sandbox exists"
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled"
	case !o.Sandboxes[0].Ready:
		return "pod sandbox is not ready"
	case o.Sandboxes[0].HostNetwork != spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated"
	case !spec.HostNetwork && len(o.Sandboxes[0].IPs) == 0:
		return "pod sandbox has no IP address"
	}
	return ""
}

// InitContainersDone says that all init containers have completed in a sandbox, because a regular
// container was created in it.
func (o Observed) InitContainersDone(spec *v1.PodSpec, sandboxID string) bool {
	for i := range spec.Containers {
		if c := o.LatestContainer(spec.Containers[i].Name); c != nil && c.SandboxID == sandboxID {
			return true
		}
	}
	return false
}

// Sandbox is a pod sandbox of the runtime.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs, primary first; empty for the host's network.
	IPs []string
	// HostNetwork says that the sandbox shares the node's network namespace.
	HostNetwork bool
}

// ContainerState is CRI's.
type ContainerState int

const (
	ContainerUnknown ContainerState = iota
	ContainerCreated
	ContainerRunning
	ContainerExited
)

func (s ContainerState) String() string {
	switch s {
	case ContainerCreated:
		return "created"
	case ContainerRunning:
		return "running"
	case ContainerExited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is a container of the runtime.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	State     ContainerState
	// RestartCount is the attempt: 0 for the first container of that name.
	RestartCount int32
	CreatedAt    time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	ExitCode     int32
	// NeverRan says that its start certainly brought up no process.
	NeverRan bool `json:"-"`
	// Reason is the runtime's: Completed, Error, OOMKilled, StartError ….
	Reason string
	// Message is the runtime's, or the termination message (at most 4096 bytes).
	Message string
	// Image is the pod's name for the image; ImageID is the runtime's name for it.
	Image   string
	ImageID string
	LogPath string
	// TerminationLog is the file on the host that podd created for its termination message;
	// empty if it created none.
	TerminationLog string `json:"-"`
	// User is the user of its first process; nil if the runtime does not report it.
	User *User
	// Resources are the limits that the runtime enforces; nil if it does not report them.
	Resources *ContainerResources
	// GracePeriod is the pod's, read back from the container's annotation for a pod without
	// a manifest; nil if unknown.
	GracePeriod *time.Duration
	// Hash is ContainerHash of its spec, read back from its annotation; empty if
	// unknown.
	Hash string
	// ContentHashes are those of its pod's objects when the container was made, read back from
	// its annotation; empty if unknown.
	ContentHashes ContentHashes `json:"-"`
	// Kept is the part of its spec in the annotations. It serves a pod without a manifest,
	// if podd has no spec of it either. It has the name, the ports, the preStop hook, and
	// restartPolicy Always for a sidecar; no other container has that in Kept. It is nil
	// without a hook, unless the container is a sidecar.
	Kept *v1.Container
}

// OOMKilled says that the kernel killed the container for its memory. The observer
// determines that before any decision, because a runtime may miss it and report Error.
func (c *Container) OOMKilled() bool {
	return c.State == ContainerExited && c.Reason == ReasonOOMKilled
}

// Succeeded says that the container, of kind k, has ended and has not failed.
func (c *Container) Succeeded(k ContainerKind) bool {
	return c.State == ContainerExited && !Failed(k, c.ExitCode, c.Reason)
}

// ContainerHash changes when a container must be recreated: with its name or image, as in
// the kubelet. Only podd compares it, with a hash that podd wrote itself. Computing it
// differently would restart every container at an upgrade.
func ContainerHash(c *v1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q", c.Name, c.Image)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// ContainerResources are the runtime's resource limits of one container; 0 for none.
type ContainerResources struct {
	CPUShares          int64 // weight, 1024 per CPU (also on cgroup v2)
	CPUQuota           int64 // microseconds per period
	CPUPeriod          int64 // microseconds
	MemoryLimitInBytes int64
	// MemoryQoS is zero with cgroup v1.
	MemoryQoS MemoryQoS
}

// User is the identity of a container's first process.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// Summary is a cheap view of one of podd's pods: enough to notice changes, without a call
// for each container.
type Summary struct {
	UID       UID
	Name      string
	Namespace string
	// Source is empty if the sandbox's annotation lacks it.
	Source Source
	// Sandboxes maps sandbox ID to ready.
	Sandboxes map[string]bool
	// Containers maps container ID to state.
	Containers map[string]ContainerState
}

// Identity identifies a sandbox or container of the runtime. It does not change as long as
// the ID exists.
type Identity struct {
	ID             string
	UID            UID
	Pod, Namespace string
	// Container is the container's name; empty for a sandbox.
	Container string
	// Image is the pod's name for the image; empty if the runtime does not report it for a
	// sandbox.
	Image string
}
