package agent

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent/backoff"
	"podd/internal/budget"
	"podd/internal/pod"
)

// Observer reads the runtime's state.
type Observer interface {
	// Observe returns everything that the runtime knows of one pod; an empty Observed
	// for an unknown one. The reason of a container that the kernel killed for memory
	// is OOMKilled, whether or not the runtime saw that: decisions depend on it.
	Observe(ctx context.Context, uid pod.UID) (pod.Observed, error)
	// Lookup is Observe limited to what the runtime's lists contain: whether the pod
	// exists, and which agent it belongs to.
	Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error)
	// Summaries lists podd's own pods.
	Summaries(ctx context.Context) ([]pod.Summary, error)
}

// Inputs computes what a pod's sandbox and containers depend on besides the pod:
// variables, addresses, DNS. Both methods read at most small files, and store
// nothing.
type Inputs interface {
	// Sandbox is called once per sandbox.
	Sandbox(p *v1.Pod) (pod.SandboxInputs, error)
	// Container is called once per start of a container; sandboxIPs are the observed
	// ones.
	Container(p *v1.Pod, c *v1.Container, sandboxIPs []string) (pod.ContainerInputs, error)
}

// Sandboxes creates and stops pod sandboxes. Stop and Remove are idempotent.
type Sandboxes interface {
	// Handler is the runtime handler that the pod requests, "" for the default; an
	// error if the runtime cannot run the pod.
	Handler(ctx context.Context, p *v1.Pod) (string, error)
	RunSandbox(ctx context.Context, req pod.SandboxRequest) (id string, err error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers creates and stops containers. Stop and Remove are idempotent.
type Containers interface {
	CreateContainer(ctx context.Context, req pod.ContainerRequest) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer blocks until the container has exited, at most for grace plus the
	// time that SIGKILL takes.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	// UpdateContainer sets the resources of a running container to those in c.
	UpdateContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error
}

// Images makes the images that a container needs available: its own, and those of
// the image volumes that it mounts. Ensure blocks for local lookups only; the end of
// a pull wakes the pod.
type Images interface {
	Ensure(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ImageState, error)
	// Forget cancels what was requested for a pod.
	Forget(uid pod.UID)
	// Retry resets the back-off of a pod's pulls: the next Ensure tries at once.
	Retry(uid pod.UID)
}

// Volumes mounts a pod's volumes. Ensure, Release and TearDown are idempotent.
type Volumes interface {
	// Ensure sets the volumes up, outside the syncs if that takes long: a change of a
	// state that is not ready wakes the pod. Release and TearDown cancel that.
	Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error)
	// Follow takes p as the newest version of a pod that has a sandbox: its volumes
	// may say something of it. It never blocks.
	Follow(p *v1.Pod)
	// Stopping says that the pod is being stopped, which ends what Follow began. It
	// never blocks.
	Stopping(uid pod.UID)
	// Hold keeps the container's subPath bind mounts at their current version until
	// release is called: from before Mounts until the container was started, or was not.
	// It never blocks.
	Hold(p *v1.Pod, c *v1.Container) (release func())
	// Mounts returns the container's volume mounts; subPaths are those of its Inputs.
	Mounts(p *v1.Pod, c *v1.Container, subPaths []string) ([]pod.Mount, error)
	// Devices returns the devices of the container's volumeDevices.
	Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error)
	// AbortRequests is called for a pod that is being ended, while one of its containers
	// does not exit although it was killed. It aborts the requests that wait for the
	// server of one of the pod's volumes, as long as that server does not respond, and
	// reports each such volume once through tell. It blocks until ctx ends and not much
	// longer; it returns early if there is nothing to watch.
	AbortRequests(ctx context.Context, uid pod.UID, tell func(why string))
	TearDown(ctx context.Context, uid pod.UID) error
	// Release unmounts and deletes nothing: the pod has completed.
	Release(ctx context.Context, uid pod.UID) error
	// Discard is Release, and deletes emptyDirs: the pod was evicted.
	Discard(ctx context.Context, uid pod.UID) error
	// Pods lists the pods with something on disk, desired or not.
	Pods() ([]pod.UID, error)
}

// Cgroups creates a pod's cgroup, and removes it once nothing runs in it. All methods
// are idempotent.
type Cgroups interface {
	// EnsureCgroup creates the cgroup with the pod-level limits. It is called before
	// the sandbox is created.
	EnsureCgroup(ctx context.Context, p *v1.Pod) error
	RemoveCgroup(ctx context.Context, p *v1.Pod) error
	// HasProcesses says whether a process is in a pod's cgroup.
	HasProcesses(uid pod.UID) (bool, error)
	// LostContainers names the cgroups below a pod's of running containers that are not among
	// the known IDs: the runtime has lost them.
	LostContainers(uid pod.UID, known []string) ([]string, error)
	// KillLeftover kills what is left in the cgroups of sandboxes and containers of a pod that
	// the runtime reports as ended, by their IDs.
	KillLeftover(uid pod.UID, ids []string) error
	// OrphanedPods lists the pods that have a cgroup and are neither known nor another
	// agent's, in a form that RemoveCgroup takes.
	OrphanedPods(ctx context.Context, known []pod.UID) ([]pod.UID, error)
}

// Files creates the files on the host that a pod's sandbox and containers need
// besides their volumes.
type Files interface {
	// PreparePod is called before the sandbox is created.
	PreparePod(p *v1.Pod, in pod.SandboxInputs) error
	// PrepareContainer is called before a container is created, and completes the
	// request: mounts of files, and their names.
	PrepareContainer(req pod.ContainerRequest) (pod.ContainerRequest, error)
	// DiscardContainer is called if the requested container was not created.
	DiscardContainer(req pod.ContainerRequest) error
}

// Logs finds the logs of pods' containers, maintains the links to them, and removes
// what is no longer needed of both. Methods without an error log failures themselves.
type Logs interface {
	// RestartCounts are the least restart counts of a pod's next containers, by name,
	// as far as logs exist; with an error, those that could be read.
	RestartCounts(p *v1.Pod) (map[string]int32, error)
	// Link is called after a container was started, and after each observation:
	// existing links cost nothing.
	Link(seen pod.Observed)
	// ContainerRemoved keeps the container's log files if keepLog says so.
	ContainerRemoved(id string, keepLog bool)
	SandboxRemoved(id string)
	// OrphanedLogs returns the names of the pod with this UID, if it has logs: of one that an
	// earlier podd left behind, only the UID may be known.
	OrphanedLogs(uid pod.UID) (namespace, name string, ok bool, err error)
	// RemoveLogs removes the log directory of a removed pod.
	RemoveLogs(p *v1.Pod) error
}

// StatusSink receives a pod's state after each sync. None of the methods may block.
type StatusSink interface {
	Report(r pod.Report)
	// Forget says that the node has nothing left of a pod.
	Forget(uid pod.UID)
	// Drop says that podd knows nothing about a pod any more; the node may still have some of
	// it.
	Drop(uid pod.UID)
}

// Recorder records events; eventType is v1's Normal or Warning, reason the kubelet's
// if it has one. None of the methods may block.
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
	// ContainerEvent is Event for one container of the pod.
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
	// ForgetPod says that there will be no more events about a pod.
	ForgetPod(uid pod.UID)
}

// Probes runs the probes of containers.
type Probes interface {
	// Sync names all containers of a pod that may be probed now; it is called after
	// each sync, never blocks, and is idempotent. terminating: only readiness probes
	// go on.
	Sync(p *v1.Pod, podIP string, targets []pod.ProbeTarget, terminating bool)
	// Results are the latest ones; each change of them wakes the pod.
	Results(uid pod.UID) pod.ProbeResults
	Forget(uid pod.UID)
	// Retain forgets what an earlier podd saved of pods that are not named.
	Retain(keep map[pod.UID]bool)
}

// Hooks runs the lifecycle handlers of containers.
type Hooks interface {
	// Run blocks until the handler or ctx ends. The error says what failed in the
	// words of the container's waiting message.
	Run(ctx context.Context, req pod.HookRequest) error
}

// Objects is told which ConfigMaps and Secrets the pods name, and in return has
// ObjectsChanged called. None of the calls may block.
type Objects interface {
	// Register names a pod. Its objects matter from now on, or matter differently than before.
	Register(p *v1.Pod)
	Unregister(uid pod.UID)
	// Contents identifies the contents of a registered pod's existing objects: a
	// different number means a different content.
	Contents(uid pod.UID) map[pod.ObjectKey]uint64
	// Epoch names the key of these numbers. Numbers that an earlier podd computed in the
	// same epoch can be compared with them. It is empty if none can be compared.
	Epoch() string
}

// Devices has the devices that pods were allocated from the node's device plugins.
type Devices interface {
	// Container returns what a container needs to use its devices, before the container is
	// started. If something is not ready, its next change wakes the pod. It may block until
	// ctx ends.
	Container(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ContainerDevices, error)
	// Health is that of a pod's devices, by container; nil for none. A change wakes the pod.
	Health(uid pod.UID) map[string][]v1.ResourceStatus
	// Release says that no part of the pod runs any more. It is idempotent.
	Release(uid pod.UID)
	// Retain releases the devices of all pods that are not named.
	Retain(keep map[pod.UID]bool)
}

// Admitter says whether the node admits a pod.
type Admitter interface {
	// Admit does not block. If a verdict is still to come, RetryAdmission is called when it does.
	// others are the pods that count against the node: admitted and not completed, without the
	// candidate.
	Admit(p *v1.Pod, others []*v1.Pod) pod.Verdict
	// CountRejection counts a pod that was admitted and then turned out to be unable to run on
	// this node. It does not block.
	CountRejection(reason string)
}

// Parts are what an Agent runs pods with. All fields are required except those with a
// default.
type Parts struct {
	Observer   Observer
	Inputs     Inputs
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	Volumes    Volumes
	Cgroups    Cgroups
	Files      Files
	// Probes, Hooks and Admitter may be nil: nothing is probed, hooks are skipped,
	// every pod is admitted.
	Probes   Probes
	Hooks    Hooks
	Admitter Admitter
	// Devices may be nil: there are no device plugins.
	Devices Devices
	// ResourceClaims may be nil: no pod has any.
	ResourceClaims ResourceClaims
	// Limits may be nil: nothing is watched.
	Limits Limits
	// Resizer may be nil: every resize is granted, and only containers change.
	Resizer Resizer
	// MissingFeatures returns the features (KEP-5328) that an update of a pod needs and that
	// this node does not declare. It may be nil, and must not block.
	MissingFeatures func(before, after *v1.Pod) []string
	// MemoryQoS has the rules that Containers and Cgroups apply.
	MemoryQoS pod.MemoryQoSRules
	// HostIP returns the address at which pods on the host's network are reached now; empty
	// if unknown. It must not block.
	HostIP func() string
	// NodeIPs are the node's addresses. Pods that have both families are reached in the
	// family of the first address.
	NodeIPs []string
}

func (p Parts) withDefaults() Parts {
	if p.Probes == nil {
		p.Probes = noProbes{}
	}
	if p.Hooks == nil {
		p.Hooks = noHooks{}
	}
	if p.Admitter == nil {
		p.Admitter = admitAll{}
	}
	if p.HostIP == nil {
		p.HostIP = func() string { return "" }
	}
	if p.Devices == nil {
		p.Devices = noDevices{}
	}
	if p.ResourceClaims == nil {
		p.ResourceClaims = noResourceClaims{}
	}
	if p.Limits == nil {
		p.Limits = noLimits{}
	}
	return p
}

// Config configures an Agent. All fields are required except those with a default.
type Config struct {
	// Parts that are known when the agent is created; those that AwaitRuntime
	// returns replace them.
	Parts
	// AwaitRuntime returns the parts if they are known only once the runtime has responded
	// for the first time. It blocks until then, but not for long: it is called again
	// until it returns no error, and the pods wait, with its error as the reason.
	// Nil: Parts are complete.
	AwaitRuntime func(ctx context.Context) (Parts, error)

	Logs   Logs
	Status StatusSink
	Events Recorder
	// Objects may be nil: there are none.
	Objects Objects
	// Sources are those that will be ready at some time; a running pod of any other
	// source is orphaned once all of them are ready.
	Sources []pod.Source
	// BackOff is the back-off policy for restarts; the kubelet's if zero.
	BackOff backoff.Policy
	// Budget bounds the restarts that pods' own policies want earlier than BackOff; nil for
	// no bound.
	Budget *budget.Budget
	// ParallelStarts bounds the sandboxes being started concurrently; 0 for two per
	// CPU, at least four.
	ParallelStarts int
	// LogRetention is how long the logs of a removed pod are kept for log shippers; 0
	// for one minute, the kubelet's collection interval.
	LogRetention time.Duration
	// LogRemovalsDir is a directory, used by Run alone, for checkpoints of logs that are
	// due for removal; empty for none.
	LogRemovalsDir string
	// CompletedDir is a directory, used by Run alone, for checkpoints of desired pods that
	// have completed or were terminated by the node; empty to forget them with a
	// restart.
	CompletedDir string
	// AllocatedDir is a directory, used by Run alone, for checkpoints of the allocated
	// resources of pods that their source may resize. If it is empty, a restart forgets
	// them.
	AllocatedDir string
	// AcceptedDir is a directory, used by Run alone, for the specs of all pods that may have
	// something in the runtime. If it is empty, a restart of podd forgets the specs of pods
	// that lose their manifests meanwhile, and knows them by name alone.
	AcceptedDir string
	// StartsDir is a directory, used by Run alone, for checkpoints of containers that are
	// being started. If it is empty, a start that podd's own end interrupted counts as a
	// failure.
	StartsDir string
	// InterruptionsDir is a directory, used by Run alone, for checkpoints of pods that a shutdown
	// of the machine is ending. If it is empty, and the machine loses power meanwhile, such a pod
	// may count as completed.
	InterruptionsDir string
	Log              *slog.Logger
	Metrics          prometheus.Registerer
}
