package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podd/cri/critest/state"
)

type (
	runtime   = state.Runtime[string, string]
	sandbox   = state.Sandbox[string]
	container = state.Container[string, string]
)

// rig is a runtime with its lock held, and what it told.
type rig struct {
	*testing.T
	runtime
	told []string
}

// inBubble runs a test with the lock of a runtime held; pass lets go of it.
func inBubble(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		r.Changed = func(ch state.Change[string, string]) {
			name := ch.Sandbox.Pod
			if ch.Container != nil {
				name += "/" + ch.Container.Name
			}
			r.told = append(r.told, fmt.Sprintf("%s %s", name, []string{"created", "started", "stopped", "deleted", "lost"}[ch.Kind]))
		}
		r.Lock()
		defer r.Unlock()
		defer r.Close()
		test(r)
	})
}

func (r *rig) pass(d time.Duration) {
	r.Unlock()
	time.Sleep(d)
	r.Lock()
}

func (r *rig) run(name string) *sandbox {
	r.Helper()
	b, err := r.BeginSandbox(sandbox{Pod: name, UID: "1"})
	if err := errors.Join(err, r.RunSandbox(b)); err != nil {
		r.Fatal(err)
	}
	return b
}

func (r *rig) start(b *sandbox, name string) *container {
	r.Helper()
	c, err := r.BeginContainer(b, container{Name: name})
	if err := errors.Join(err, r.CreateContainer(c), r.StartContainer(c)); err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *rig) tells(want string) {
	r.Helper()
	if got := strings.Join(r.told, ", "); got != want {
		r.Errorf("told %s, want %s", got, want)
	}
	r.told = nil
}

func TestNames(t *testing.T) {
	inBubble(t, func(r *rig) {
		var taken *state.NameError
		b, err := r.BeginSandbox(sandbox{Pod: "a", UID: "1"})
		if _, again := r.BeginSandbox(sandbox{Pod: "a", UID: "1"}); err != nil || !errors.As(again, &taken) || taken.Holder != b.ID {
			t.Errorf("a name of a create under way: got %v, %v", err, again)
		}
		r.AbandonSandbox(b)
		b = r.run("a")
		if _, err := r.BeginSandbox(sandbox{Pod: "a", UID: "1"}); !errors.As(err, &taken) {
			t.Errorf("a name of what runs: got %v", err)
		}
		if _, err := r.BeginSandbox(sandbox{Pod: "a", UID: "1", Attempt: 1}); err != nil {
			t.Errorf("another attempt: got %v", err)
		}
		half, err := r.BeginContainer(b, container{Name: "web"})
		r.Crash()
		if again := r.CreateContainer(half); err != nil || !errors.Is(again, state.ErrRestarted) {
			t.Errorf("a create across a crash: got %v, %v", err, again)
		}
		r.start(b, "web")
		r.RemoveSandbox(b)
		r.start(r.run("a"), "web")
		r.Forget(r.Sandboxes()[0])
		r.run("a")
	})
}

func TestEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		b := r.run("a")
		short, long, lost := r.start(b, "short"), r.start(b, "long"), r.start(b, "lost")
		r.EndAfter(short, time.Hour, state.ExitWith(0))
		r.EndAfter(long, 2*time.Hour, state.ExitWith(1))
		r.EndAfter(lost, time.Hour, state.ExitWith(0))
		r.Lose(lost)
		r.told = nil
		r.pass(90 * time.Minute)
		r.tells("a/short stopped")
		if took := short.FinishedAt.Sub(short.StartedAt); took != time.Hour || short.State != state.Exited || lost.State != state.Lost {
			t.Errorf("after %v: %v, and %v of the lost one", took, short.State, lost.State)
		}
		r.StopSandbox(b)
		r.tells("a/long stopped, a/lost stopped, a stopped")
		for c, want := range map[*container]state.Exit{short: {Reason: "Completed"}, long: state.Killed, lost: {Code: 255, Reason: "Unknown"}} {
			if c.Exit != want {
				t.Errorf("%s: got %+v, want %+v", c.Name, c.Exit, want)
			}
		}
		r.pass(time.Hour)
		r.RemoveSandbox(b)
		r.tells("a/short deleted, a/long deleted, a/lost deleted, a deleted")
	})
}

func TestADeadSandboxKeepsItsAddressAndRejectsContainers(t *testing.T) {
	inBubble(t, func(r *rig) {
		b := r.run("a")
		c, err := r.BeginContainer(b, container{Name: "late"})
		if err := errors.Join(err, r.CreateContainer(c)); err != nil {
			t.Fatal(err)
		}
		runs := r.start(b, "web")
		r.DieSandbox(b)
		if b.IP == "" || r.Addresses() != 1 || runs.State != state.Running {
			t.Errorf("dead: address %q of %d, %v", b.IP, r.Addresses(), runs.State)
		}
		var down *state.SandboxError
		if err := r.StartContainer(c); !errors.As(err, &down) {
			t.Errorf("start in it: got %v", err)
		}
		if _, err := r.BeginContainer(b, container{Name: "new"}); !errors.As(err, &down) {
			t.Errorf("create in it: got %v", err)
		}
		var twice *state.ProcessError
		if err := r.StartContainer(runs); !errors.As(err, &twice) {
			t.Errorf("start twice: got %v", err)
		}
		r.StopSandbox(b)
		if b.IP != "" || r.Addresses() != 0 || runs.Exit != state.Killed || c.State != state.Created {
			t.Errorf("stopped: address %q of %d, %+v, %v", b.IP, r.Addresses(), runs.Exit, c.State)
		}
	})
}
