package agent

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Observer reads the runtime's state.
type Observer interface {
	// Observe returns all that the runtime knows of one pod; an empty
	// Observed for a pod it does not know. Ends are attributed in it already: the
	// reason of a container that the kernel killed for memory is OOMKilled, whether
	// or not the runtime saw it, for decisions rest on that.
	Observe(ctx context.Context, uid pod.UID) (pod.Observed, error)
	// Lookup is Observe with no more than the runtime's lists say: whether there
	// is anything of a pod, and whose it is.
	Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error)
	// Summaries lists podd's own pods.
	Summaries(ctx context.Context) ([]pod.Summary, error)
}

// Inputs computes what a pod's sandbox and containers rest on beyond the pod:
// variables, addresses, DNS. Both read small files at most, and keep nothing.
type Inputs interface {
	// Sandbox is asked once for each sandbox.
	Sandbox(p *v1.Pod) (pod.SandboxInputs, error)
	// Container is asked once for each start of a container; sandboxIPs are the
	// observed ones.
	Container(p *v1.Pod, c *v1.Container, sandboxIPs []string) (pod.ContainerInputs, error)
}

// Sandboxes makes and ends pod sandboxes. Stop and Remove are idempotent.
type Sandboxes interface {
	// Handler is the one of the runtime's that the pod asks for, "" for the
	// default; an error where the runtime cannot run the pod.
	Handler(ctx context.Context, p *v1.Pod) (string, error)
	RunSandbox(ctx context.Context, req pod.SandboxRequest) (id string, err error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers makes and ends containers. Stop and Remove are idempotent.
type Containers interface {
	CreateContainer(ctx context.Context, req pod.ContainerRequest) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer blocks until the container has ended, grace at most plus
	// the time SIGKILL takes.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	// UpdateContainer holds a running container to the resources that c names.
	UpdateContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error
}

// Images makes the images that a container needs available: its own, and those of
// the image volumes that it mounts. Ensure blocks for local looks only; the end of a
// pull wakes the pod.
type Images interface {
	Ensure(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ImageState, error)
	// Forget gives up what was asked for a pod.
	Forget(uid pod.UID)
	// Retry ends the back-off of a pod's pulls: the next Ensure tries at once.
	Retry(uid pod.UID)
}

// Volumes mounts a pod's volumes. Ensure, Release and TearDown are idempotent.
type Volumes interface {
	// Ensure sets the volumes up, beside the syncs where that takes long: a change
	// of a state that is not ready wakes the pod. Release and TearDown give up what
	// is under way.
	Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error)
	// Mounts binds the container's volumes; subPaths are its Inputs'.
	Mounts(p *v1.Pod, c *v1.Container, subPaths []string) ([]pod.Mount, error)
	TearDown(ctx context.Context, uid pod.UID) error
	// Release unmounts, and deletes nothing: the pod has completed.
	Release(ctx context.Context, uid pod.UID) error
	// Discard is Release, and deletes emptyDirs: the pod was evicted.
	Discard(ctx context.Context, uid pod.UID) error
	// Pods lists those that have something on disk, wanted or not.
	Pods() ([]pod.UID, error)
}

// Cgroups makes a pod's cgroup, and removes it once nothing runs in it. All
// are idempotent.
type Cgroups interface {
	// EnsureCgroup makes the cgroup with the bounds of the pod as a whole. It is
	// called before the sandbox is made.
	EnsureCgroup(ctx context.Context, p *v1.Pod) error
	RemoveCgroup(ctx context.Context, p *v1.Pod) error
	// Busy says whether a process is in a pod's cgroup.
	Busy(uid pod.UID) (bool, error)
	// Strays names the cgroups, below a pod's, of containers that run and are none
	// of the known ones, by their IDs: the runtime has lost sight of them.
	Strays(uid pod.UID, known []string) ([]string, error)
	// Leftover lists those that have a cgroup and are none of the known ones,
	// nor any pod of another's, in a form that RemoveCgroup takes.
	Leftover(ctx context.Context, known []pod.UID) ([]pod.UID, error)
}

// Files makes the files on the host that a pod's sandbox and containers need
// beside their volumes.
type Files interface {
	// PreparePod is called before the sandbox is made.
	PreparePod(p *v1.Pod) error
	// PrepareContainer is called before a container is made, and completes the
	// request: mounts of files, and their names.
	PrepareContainer(req pod.ContainerRequest) (pod.ContainerRequest, error)
	// DiscardContainer is called when no container came of a request.
	DiscardContainer(req pod.ContainerRequest) error
}

// Logs knows the logs of pods' containers, keeps the links to them, and removes
// what nobody needs of both. What returns no error says itself what it could not do.
type Logs interface {
	// RestartCounts are the least restart counts of a pod's next containers, by
	// name, as far as logs tell of earlier ones; with an error, what else is known.
	RestartCounts(p *v1.Pod) (map[string]int32, error)
	// Link is called after a container was started, and after each
	// observation: what is linked already costs nothing.
	Link(seen pod.Observed)
	// ContainerRemoved leaves the container's log files where keepLog says so.
	ContainerRemoved(id string, keepLog bool)
	SandboxRemoved(id string)
	// RemoveLogs removes a gone pod's log directory.
	RemoveLogs(p *v1.Pod) error
}

// StatusSink is told of a pod after each sync. Neither call may block.
type StatusSink interface {
	Report(r pod.Report)
	Forget(uid pod.UID)
}

// Recorder takes events; eventType is v1's Normal or Warning, reason the
// kubelet's word where it has one. Neither call may block.
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
	// ContainerEvent is Event for one container of the pod.
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
	// Gone says that nothing more happens to a pod.
	Gone(uid pod.UID)
}

// Probes asks containers how they are.
type Probes interface {
	// Sync names the whole set of a pod's containers that may be probed now; it
	// is called after each sync, never blocks, and changes nothing where nothing
	// changed. terminating says that the pod ends: readiness alone goes on.
	Sync(p *v1.Pod, podIP string, targets []pod.ProbeTarget, terminating bool)
	// Results are the last ones; each change of them wakes the pod.
	Results(uid pod.UID) pod.ProbeResults
	Forget(uid pod.UID)
}

// Hooks runs the lifecycle handlers of containers.
type Hooks interface {
	// Run blocks until the handler or ctx ended. The error says what failed in
	// words for the container's waiting message.
	Run(ctx context.Context, req pod.HookRequest) error
}

// Admitter says whether the node takes a pod.
type Admitter interface {
	// Admit is pure. others are the pods that count against the node: admitted,
	// not ended, the candidate not among them.
	Admit(p *v1.Pod, others []*v1.Pod) pod.Verdict
}

// Parts are what an Agent makes pods run with. All fields but those with a
// default are required.
type Parts struct {
	Observer   Observer
	Inputs     Inputs
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	Volumes    Volumes
	Cgroups    Cgroups
	Files      Files
	// Probes, Hooks and Admitter may be nil: nothing is probed, hooks are left
	// out, every pod is admitted.
	Probes   Probes
	Hooks    Hooks
	Admitter Admitter
	// Limits may be nil: nothing is watched.
	Limits Limits
	// Resizer may be nil: every resize is granted, and only containers change.
	Resizer Resizer
	// HostIP is where pods on the host's network are asked; empty if unknown.
	HostIP string
	// NodeIPs are the node's addresses: the first one's family is that in which
	// the other pods are asked, if they have both.
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
		p.Admitter = everyPod{}
	}
	if p.Limits == nil {
		p.Limits = noLimits{}
	}
	return p
}

// Config is what an Agent is made of. All fields but those with a default are
// required.
type Config struct {
	// Parts that are known when the agent is made; those of Greeted take their
	// place.
	Parts
	// Greeted returns the parts where they are known only once the runtime has
	// answered for the first time. It blocks until then, a moment at most: until it
	// returns no error it is asked again, and the pods wait, for the reason that
	// the error gives. Nil: Parts are complete.
	Greeted func(ctx context.Context) (Parts, error)

	Logs   Logs
	Status StatusSink
	Events Recorder
	// Sources are those that will speak; a pod of the runtime whose source is
	// not among them is an orphan once all of them have spoken.
	Sources []pod.Source
	// BackOff is the back-off policy for restarts; the kubelet's where zero.
	BackOff backoff.Policy
	// ParallelStarts bounds the sandboxes being started at the same time; 0 for
	// two for each processor, at least four.
	ParallelStarts int
	// LogRetention is how long the logs of a gone pod stay for those who ship
	// them; 0 for one minute, the kubelet's pace of collection.
	LogRetention time.Duration
	// LogRemovals is a directory of Run's own for small files that remember, over
	// a restart, whose logs are to be removed; empty for none.
	LogRemovals string
	// Ended is a directory of Run's own for small files that remember which
	// wanted pods have ended, by themselves or by the node's decision; empty to
	// forget with a restart.
	Ended string
	// Allocated is a directory of Run's own for small files that remember, over a
	// restart, what the node granted pods whose source may desire something else;
	// empty to forget.
	Allocated string
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}
