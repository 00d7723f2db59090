package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrRestarted says that the runtime crashed in the middle of a create.
var ErrRestarted = errors.New("the runtime was restarted")

// BeginSandbox reserves the name of a sandbox that is about to be created. The caller sets
// the fields that identify it, and its Data. Either RunSandbox or AbandonSandbox follows.
// It fails with a *NameError.
func (r *Runtime[S, C]) BeginSandbox(b Sandbox[S]) (*Sandbox[S], error) {
	b.ID = r.newID()
	b.name = strings.Join([]string{b.Pod, b.Namespace, b.UID, fmt.Sprint(b.Attempt)}, "_")
	return &b, r.reserve("sandbox", b.name, b.ID)
}

// AbandonSandbox gives up a sandbox that was begun.
func (r *Runtime[S, C]) AbandonSandbox(b *Sandbox[S]) {
	if r.names[b.name] == b.ID {
		delete(r.names, b.name)
	}
}

// RunSandbox makes a begun sandbox ready, with an address. It fails with ErrRestarted.
func (r *Runtime[S, C]) RunSandbox(b *Sandbox[S]) error {
	if r.names[b.name] != b.ID {
		return ErrRestarted
	}
	if !b.HostNetwork {
		b.IP = r.address()
	}
	b.Ready, b.CreatedAt = true, r.now()
	r.sandboxes = append(r.sandboxes, b)
	r.tell(WasCreated, b, nil)
	r.tell(WasStarted, b, nil)
	return nil
}

func (r *Runtime[S, C]) address() string {
	for {
		r.nextIP++
		ip := fmt.Sprintf("10.99.%d.%d", r.nextIP/250%256, r.nextIP%250+2)
		if !r.addresses[ip] {
			if r.addresses == nil {
				r.addresses = make(map[string]bool)
			}
			r.addresses[ip] = true
			return ip
		}
	}
}

// StopSandbox kills what runs in the sandbox and gives its address back.
func (r *Runtime[S, C]) StopSandbox(b *Sandbox[S]) {
	r.killContainers(b)
	delete(r.addresses, b.IP)
	b.IP, b.Stopped = "", true
	r.down(b)
}

// DieSandbox ends the process that holds the sandbox: its containers run on, and it keeps
// its address until it is stopped.
func (r *Runtime[S, C]) DieSandbox(b *Sandbox[S]) { r.down(b) }

// KillSandbox is DieSandbox, and also kills everything that runs in the sandbox.
func (r *Runtime[S, C]) KillSandbox(b *Sandbox[S]) {
	r.killContainers(b)
	r.down(b)
}

func (r *Runtime[S, C]) killContainers(b *Sandbox[S]) {
	for _, c := range r.ContainersOf(b) {
		r.End(c, Killed)
	}
}

func (r *Runtime[S, C]) down(b *Sandbox[S]) {
	if b.Ready {
		b.Ready = false
		r.tell(WasStopped, b, nil)
	}
}

// RemoveSandbox removes the sandbox with its containers, and first stops what runs.
func (r *Runtime[S, C]) RemoveSandbox(b *Sandbox[S]) {
	r.StopSandbox(b)
	for _, c := range r.ContainersOf(b) {
		r.RemoveContainer(c)
	}
	delete(r.names, b.name)
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(other *Sandbox[S]) bool { return other == b })
	r.tell(WasDeleted, b, nil)
}

// Forget makes a sandbox vanish with its containers, as a reboot does. It reports no
// change.
func (r *Runtime[S, C]) Forget(b *Sandbox[S]) {
	for _, c := range r.ContainersOf(b) {
		c.stopTimer()
		delete(r.names, c.name)
	}
	delete(r.names, b.name)
	delete(r.addresses, b.IP)
	b.Ready, b.Stopped, b.IP = false, true, ""
	r.containers = slices.DeleteFunc(r.containers, func(c *Container[S, C]) bool { return c.Sandbox == b })
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(other *Sandbox[S]) bool { return other == b })
}
