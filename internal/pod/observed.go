package pod

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Observed is what the runtime says of one pod, at one moment.
type Observed struct {
	UID       UID
	Name      string
	Namespace string
	// Source is read back from the sandbox's annotation; empty if unknown.
	Source Source
	// StartTime is read back from the sandbox's annotation; zero if unknown.
	StartTime time.Time
	// Sandboxes, newest (highest attempt) first.
	Sandboxes []Sandbox
	// Containers of all sandboxes, the highest attempts first: of each name the
	// newest before the older ones, whatever the clock says of them.
	Containers []Container
	// Foreign is the identity of another podd that runs something under this UID,
	// which is not in here; empty for nobody.
	Foreign string
	// At is when the observation began.
	At time.Time
}

// Empty says that the runtime knows nothing of the pod that is this podd's.
func (o Observed) Empty() bool { return len(o.Sandboxes) == 0 && len(o.Containers) == 0 }

// Latest returns the newest container of that name, or nil: the one with the
// highest attempt. A create thought lost may come true after its successor's.
func (o Observed) Latest(name string) *Container {
	var latest *Container
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Name == name && (latest == nil || c.RestartCount > latest.RestartCount) {
			latest = c
		}
	}
	return latest
}

// Current returns the sandbox that the pod's containers belong into, or nil: the
// newest, which is ready, alone in that, and on the network that the spec names.
// Anything else is beyond repair, as in upstream's PodSandboxChanged.
func (o Observed) Current(spec *v1.PodSpec) *Sandbox {
	if len(o.Sandboxes) == 0 {
		return nil
	}
	for i := range o.Sandboxes[1:] {
		if o.Sandboxes[i+1].Ready {
			return nil
		}
	}
	newest := &o.Sandboxes[0]
	if !newest.Ready || newest.HostNetwork != spec.HostNetwork || !newest.HostNetwork && len(newest.IPs) == 0 {
		return nil
	}
	return newest
}

// Initialized says that all init containers have completed in a sandbox: a
// regular container was made in it.
func (o Observed) Initialized(spec *v1.PodSpec, sandboxID string) bool {
	for i := range spec.Containers {
		if c := o.Latest(spec.Containers[i].Name); c != nil && c.SandboxID == sandboxID {
			return true
		}
	}
	return false
}

// Sandbox is one pod sandbox of the runtime.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs, primary first; empty for the host's network.
	IPs []string
	// HostNetwork: the sandbox shares the node's network namespace.
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

// Container is one container of the runtime.
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
	// Reason is the runtime's: Completed, Error, OOMKilled, StartError ….
	Reason string
	// Message is the runtime's, or the termination message (at most 4096 bytes).
	Message string
	// Image as the pod named it; ImageID as the runtime resolved it.
	Image   string
	ImageID string
	LogPath string
	// TerminationLog is the file on the host that podd made for its last message;
	// empty where it made none.
	TerminationLog string `json:"-"`
	// User is who the process started as; nil where the runtime does not say.
	User *User
	// Resources are what the runtime holds the container to; nil where it does
	// not say.
	Resources *ContainerResources
	// GracePeriod is the pod's own, read back from the container's annotation,
	// for a pod whose manifest is gone; nil if unknown.
	GracePeriod *time.Duration
	// Hash is ContainerHash of the spec that it was made from, read back from
	// its annotation; empty if unknown.
	Hash string
	// Kept is what the annotations kept of its spec, for a pod whose manifest is
	// gone: name, ports, the preStop hook, and restartPolicy Always of a sidecar,
	// which no other container has in Kept; nil if there is neither.
	Kept *v1.Container
}

// OOMKilled says that the kernel killed the container for its memory. Whoever
// observes settles that before anybody decides by it: a runtime may come too late
// to see it, and then calls the end an Error.
func (c *Container) OOMKilled() bool {
	return c.State == ContainerExited && c.Reason == ReasonOOMKilled
}

// ContainerHash changes when a container has to be made anew: with its name or
// image, as the kubelet has it. Only podd compares it, with what it wrote itself:
// another way to compute it would restart every container at an upgrade.
func ContainerHash(c *v1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q", c.Name, c.Image)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// ContainerResources is the runtime's view of one container's bounds; 0 for
// none.
type ContainerResources struct {
	CPUShares          int64 // weight, 1024 a processor (also on cgroup v2)
	CPUQuota           int64 // microseconds a period
	CPUPeriod          int64 // microseconds
	MemoryLimitInBytes int64
}

// User is the identity of a container's first process.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// Summary is a cheap view of one pod of podd's: enough to see that something
// changed, without a call per container.
type Summary struct {
	UID       UID
	Name      string
	Namespace string
	// Source is empty where the sandbox's annotation does not say.
	Source Source
	// Sandboxes maps sandbox ID to ready.
	Sandboxes map[string]bool
	// Containers maps container ID to state.
	Containers map[string]ContainerState
}
