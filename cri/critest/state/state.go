// Package state is the one fake container runtime of podd's tests, without a face:
// sandboxes, containers, reserved names and addresses, the moves that a runtime
// allows or rejects, and the faults that a test injects into its calls. critest
// serves it as CRI on a socket; the agent's tests speak to it in the agent's own
// words, in simulated time. Whoever adds a rule of containerd's or a fault here has
// it in both. Images are the socket's alone: the agent asks package images for them,
// never the runtime.
//
// It opens nothing and starts no goroutine but the timers of processes that end
// by themselves, and asks time.Now, so it may live in a synctest bubble.
package state

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Process is where a container's process is in its life.
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

// ExitWith is an exit with the runtime's reason for a code: Completed or Error.
func ExitWith(code int32) Exit {
	if code == 0 {
		return Exit{Reason: "Completed"}
	}
	return Exit{Code: code, Reason: "Error"}
}

// Killed is the end of a process that got SIGKILL.
var Killed = ExitWith(137)

// Sandbox is a pod's sandbox; Data is what a face knows besides.
type Sandbox[S any] struct {
	ID                  string
	Pod, Namespace, UID string
	Attempt             uint32
	HostNetwork         bool
	CreatedAt           time.Time
	Ready               bool
	// Stopped: it was told to stop, and holds nothing of the network any more. One
	// that died holds it until then.
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
	WasLost // no runtime tells of it
)

// Change is one thing that happened; Container is nil for the sandbox's own.
type Change[S, C any] struct {
	Kind      Kind
	Sandbox   *Sandbox[S]
	Container *Container[S, C]
}

// Runtime is the state of one runtime, of zero value ready for use. Its lock
// guards the Runtime and all that it hands out: whoever calls a method, or looks
// at a Sandbox or Container, holds it.
type Runtime[S, C any] struct {
	sync.Mutex

	// Changed is told of each change, with the lock held; nil for nobody.
	Changed func(Change[S, C])
	// Ahead is by how much the runtime's clock is ahead of time.Now.
	Ahead time.Duration

	sandboxes  []*Sandbox[S] // in the order in which they came to be
	containers []*Container[S, C]
	names      map[string]string // reserved name to ID
	addresses  map[string]bool
	nextID     uint64
	nextIP     int
}

// NameError is containerd's answer for a name that something else has, or that a
// create under way will have.
type NameError struct{ Kind, Name, Holder string }

func (e *NameError) Error() string {
	return fmt.Sprintf("failed to reserve %s name %q: name %q is reserved for %q", e.Kind, e.Name, e.Name, e.Holder)
}

// now is by the runtime's clock, without a monotonic part.
func (r *Runtime[S, C]) now() time.Time { return time.Now().Add(r.Ahead).Round(0) }

func (r *Runtime[S, C]) tell(kind Kind, b *Sandbox[S], c *Container[S, C]) {
	if r.Changed != nil {
		r.Changed(Change[S, C]{kind, b, c})
	}
}

// newID is 64 hex digits like a real one, its end the count.
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

// Crash is what a crash of the runtime leaves of the creates that are under way:
// nothing. Processes live on.
func (r *Runtime[S, C]) Crash() {
	for name, id := range r.names {
		if r.Sandbox(id) == nil && r.Container(id) == nil {
			delete(r.names, name)
		}
	}
}

// Close lets no process end by itself any more.
func (r *Runtime[S, C]) Close() {
	for _, c := range r.containers {
		c.stopTimer()
	}
}

// Sandboxes are all sandboxes in the order in which they came to be.
func (r *Runtime[S, C]) Sandboxes() []*Sandbox[S] { return slices.Clone(r.sandboxes) }

// Sandbox is the one of that ID, or nil.
func (r *Runtime[S, C]) Sandbox(id string) *Sandbox[S] {
	for _, b := range r.sandboxes {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Containers are all containers in the order in which they came to be.
func (r *Runtime[S, C]) Containers() []*Container[S, C] { return slices.Clone(r.containers) }

// Container is the one of that ID, or nil.
func (r *Runtime[S, C]) Container(id string) *Container[S, C] {
	for _, c := range r.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// ContainersOf are those of a sandbox.
func (r *Runtime[S, C]) ContainersOf(b *Sandbox[S]) []*Container[S, C] {
	var all []*Container[S, C]
	for _, c := range r.containers {
		if c.Sandbox == b {
			all = append(all, c)
		}
	}
	return all
}

// Addresses is how many are given out.
func (r *Runtime[S, C]) Addresses() int { return len(r.addresses) }
