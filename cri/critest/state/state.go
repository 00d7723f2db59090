// Package state is the one fake container runtime of podd's tests, without a face:
// sandboxes, containers, reserved names and addresses, the moves that a runtime allows or
// rejects, and the faults that a test injects into its calls. critest serves it as CRI on a
// socket; the agent's tests use it through the agent's own interfaces, in simulated time. A
// rule of containerd's or a fault that is added here applies to both. Only the socket has
// images: the agent asks package images for them, never the runtime.
//
// It opens nothing, starts no goroutine except the timers of processes that end by
// themselves, and uses time.Now, so it may live in a synctest bubble.
package state

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Process is the state of a container's process.
type Process int

const (
	Created Process = iota
	Running
	Exited
	Lost // the runtime does not know what became of it
)

// Exit is how a process ended.
type Exit struct {
	Code            int32
	Reason, Message string
}

// ExitWith returns an exit with the runtime's reason for a code: Completed or Error.
func ExitWith(code int32) Exit {
	if code == 0 {
		return Exit{Reason: "Completed"}
	}
	return Exit{Code: code, Reason: "Error"}
}

// Killed is the end of a process that got SIGKILL.
var Killed = ExitWith(137)

// Sandbox is a pod's sandbox; Data is what a face stores with it.
type Sandbox[S any] struct {
	ID                  string
	Pod, Namespace, UID string
	Attempt             uint32
	HostNetwork         bool
	CreatedAt           time.Time
	Ready               bool
	// Stopped says that the sandbox was told to stop, and holds no part of the network any
	// more. A sandbox that died holds it until then.
	Stopped bool
	// IP is its address while it holds one.
	IP   string
	Data S

	name string // reserved
}

// Container is a container and its process.
type Container[S, C any] struct {
	ID, Name                         string
	Sandbox                          *Sandbox[S]
	Attempt                          uint32
	State                            Process
	CreatedAt, StartedAt, FinishedAt time.Time
	Exit                             Exit
	Data                             C

	name  string // reserved
	timer *time.Timer
	dead  chan struct{}
}

// Dead is closed when the process ends.
func (c *Container[S, C]) Dead() <-chan struct{} { return c.dead }

// Kind is what happened to a sandbox or container.
type Kind int

const (
	WasCreated Kind = iota
	WasStarted
	WasStopped
	WasDeleted
	WasLost // no runtime reports it
)

// Change is one thing that happened; Container is nil for a change of the sandbox itself.
type Change[S, C any] struct {
	Kind      Kind
	Sandbox   *Sandbox[S]
	Container *Container[S, C]
}

// Runtime is the state of one runtime. The zero value is ready for use. Its lock guards the
// Runtime and everything that it hands out: a caller of a method, or a reader of a Sandbox
// or Container, holds it.
type Runtime[S, C any] struct {
	sync.Mutex

	// Changed is called for each change, with the lock held; it may be nil.
	Changed func(Change[S, C])
	// Ahead is how far the runtime's clock is ahead of time.Now.
	Ahead time.Duration

	sandboxes  []*Sandbox[S] // in the order in which they came to be
	containers []*Container[S, C]
	names      map[string]string // reserved name to ID
	addresses  map[string]bool
	nextID     uint64
	nextIP     int
}

// NameError is containerd's answer for a name that is taken, or that a create in progress
// has reserved.
type NameError struct{ Kind, Name, Holder string }

func (e *NameError) Error() string {
	return fmt.Sprintf("failed to reserve %s name %q: name %q is reserved for %q", e.Kind, e.Name, e.Name, e.Holder)
}

// now returns the time of the runtime's clock, without a monotonic part.
func (r *Runtime[S, C]) now() time.Time { return time.Now().Add(r.Ahead).Round(0) }

func (r *Runtime[S, C]) tell(kind Kind, b *Sandbox[S], c *Container[S, C]) {
	if r.Changed != nil {
		r.Changed(Change[S, C]{kind, b, c})
	}
}

// newID returns 64 hex digits like a real ID, which end with the count.
func (r *Runtime[S, C]) newID() string {
	r.nextID++
	return fmt.Sprintf("%016x%048x", r.nextID*0x9e3779b97f4a7c15, r.nextID)
}

func (r *Runtime[S, C]) reserve(kind, name, id string) error {
	if holder, taken := r.names[name]; taken {
		return &NameError{kind, name, holder}
	}
	if r.names == nil {
		r.names = make(map[string]string)
	}
	r.names[name] = id
	return nil
}

// Crash makes the creates in progress leave nothing, as a crash of the runtime does.
// Processes live on.
func (r *Runtime[S, C]) Crash() {
	for name, id := range r.names {
		if r.Sandbox(id) == nil && r.Container(id) == nil {
			delete(r.names, name)
		}
	}
}

// Close stops all timers: no process ends by itself any more.
func (r *Runtime[S, C]) Close() {
	for _, c := range r.containers {
		c.stopTimer()
	}
}

// Sandboxes returns all sandboxes in the order of their creation.
func (r *Runtime[S, C]) Sandboxes() []*Sandbox[S] { return slices.Clone(r.sandboxes) }

// Sandbox returns the sandbox with that ID, or nil.
func (r *Runtime[S, C]) Sandbox(id string) *Sandbox[S] {
	for _, b := range r.sandboxes {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Containers returns all containers in the order of their creation.
func (r *Runtime[S, C]) Containers() []*Container[S, C] { return slices.Clone(r.containers) }

// Container returns the container with that ID, or nil.
func (r *Runtime[S, C]) Container(id string) *Container[S, C] {
	for _, c := range r.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// ContainersOf returns the containers of a sandbox.
func (r *Runtime[S, C]) ContainersOf(b *Sandbox[S]) []*Container[S, C] {
	var all []*Container[S, C]
	for _, c := range r.containers {
		if c.Sandbox == b {
			all = append(all, c)
		}
	}
	return all
}

// Addresses returns the number of addresses that are given out.
func (r *Runtime[S, C]) Addresses() int { return len(r.addresses) }
