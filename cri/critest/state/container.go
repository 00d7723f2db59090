package state

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// SandboxError is containerd's answer to a call that needs a ready sandbox.
type SandboxError struct{ ID string }

func (e *SandboxError) Error() string {
	return fmt.Sprintf("sandbox container %q is not running", e.ID)
}

// ProcessError is containerd's answer to a second start of a container.
type ProcessError struct {
	ID    string
	State Process
}

func (e *ProcessError) Error() string {
	words := []string{"CONTAINER_CREATED", "CONTAINER_RUNNING", "CONTAINER_EXITED", "CONTAINER_UNKNOWN"}
	return fmt.Sprintf("failed to set starting state for container %q: container is in %s state", e.ID, words[e.State])
}

// BeginContainer reserves the name of a container that is about to be created. The caller
// sets its name, attempt and Data. Either CreateContainer or AbandonContainer follows. It
// fails with a *SandboxError or a *NameError.
func (r *Runtime[S, C]) BeginContainer(b *Sandbox[S], c Container[S, C]) (*Container[S, C], error) {
	if !b.Ready {
		return nil, &SandboxError{b.ID}
	}
	c.ID, c.Sandbox, c.State, c.dead = r.newID(), b, Created, make(chan struct{})
	c.name = strings.Join([]string{c.Name, b.Pod, b.Namespace, b.UID, fmt.Sprint(c.Attempt)}, "_")
	return &c, r.reserve("container", c.name, c.ID)
}

// AbandonContainer gives up a container that was begun.
func (r *Runtime[S, C]) AbandonContainer(c *Container[S, C]) {
	if r.names[c.name] == c.ID {
		delete(r.names, c.name)
	}
}

// CreateContainer makes a container that was begun. It fails with ErrRestarted.
func (r *Runtime[S, C]) CreateContainer(c *Container[S, C]) error {
	if r.names[c.name] != c.ID {
		return ErrRestarted
	}
	c.CreatedAt = r.now()
	r.containers = append(r.containers, c)
	r.tell(WasCreated, c.Sandbox, c)
	return nil
}

// CanStart says why a container cannot be started. The error is a *ProcessError or a
// *SandboxError.
func (r *Runtime[S, C]) CanStart(c *Container[S, C]) error {
	if c.State != Created {
		return &ProcessError{c.ID, c.State}
	}
	if !c.Sandbox.Ready {
		return &SandboxError{c.Sandbox.ID}
	}
	return nil
}

// StartContainer starts the process. It fails as CanStart.
func (r *Runtime[S, C]) StartContainer(c *Container[S, C]) error {
	if err := r.CanStart(c); err != nil {
		return err
	}
	c.State, c.StartedAt = Running, r.now()
	r.tell(WasStarted, c.Sandbox, c)
	return nil
}

// FailStart is a start that brings up no process.
func (r *Runtime[S, C]) FailStart(c *Container[S, C], e Exit) {
	c.StartedAt = r.now()
	r.finish(c, e)
}

// EndAfter makes a process end by itself after that time, unless it ends or gets another
// time before.
func (r *Runtime[S, C]) EndAfter(c *Container[S, C], d time.Duration, e Exit) {
	c.stopTimer()
	c.timer = time.AfterFunc(d, func() {
		r.Lock()
		defer r.Unlock()
		r.End(c, e)
	})
}

// End ends a process, if it runs. How a lost process ended remains unknown.
func (r *Runtime[S, C]) End(c *Container[S, C], e Exit) {
	switch c.State {
	case Running:
		r.finish(c, e)
	case Lost:
		r.finish(c, Exit{Code: 255, Reason: "Unknown"})
	}
}

func (r *Runtime[S, C]) finish(c *Container[S, C], e Exit) {
	c.stopTimer()
	c.State, c.Exit, c.FinishedAt = Exited, e, r.now()
	close(c.dead)
	r.tell(WasStopped, c.Sandbox, c)
}

// Lose makes the runtime forget what became of a process, until the container is stopped.
// containerd does so if a shim does not answer after a restart.
func (r *Runtime[S, C]) Lose(c *Container[S, C]) {
	c.stopTimer()
	c.State = Lost
	r.tell(WasLost, c.Sandbox, c)
}

// RemoveContainer removes a container, and kills it first if it runs.
func (r *Runtime[S, C]) RemoveContainer(c *Container[S, C]) {
	r.End(c, Killed)
	c.stopTimer()
	delete(r.names, c.name)
	r.containers = slices.DeleteFunc(r.containers, func(other *Container[S, C]) bool { return other == c })
	r.tell(WasDeleted, c.Sandbox, c)
}

func (c *Container[S, C]) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
