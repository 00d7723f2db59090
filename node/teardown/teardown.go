// Package teardown ends a podd for good, from outside: the process, its pods, the bundled
// runtime, and then everything that outlives them. It relies on podd's records about itself
// (internal/instance), and needs no running podd.
package teardown

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"podd/bundle"
	"podd/internal/instance"
	"podd/node/bundled"
)

// Podd is the podd to end. The caller must be root.
type Podd struct {
	// Runtime holds the directories and the network that podd recorded.
	bundled.Runtime
	// Found is what podd recorded about itself.
	Found instance.Instance
	// CgroupRoot is the cgroup above those of the pods.
	CgroupRoot string
	// Out receives progress messages.
	Out io.Writer
}

// End works from the top down. A running podd first stops its pods and exits. Only then does
// End stop what is left of them, since podd would restart it. End blocks for as long as the
// pods' grace periods and the runtime take. The error names what could not be removed; another
// End retries that.
func (p *Podd) End(ctx context.Context) error {
	agent, runtime := filepath.Join(p.StateDir, "podd.sock"), bundle.Socket(p.StateDir)
	for _, socket := range []string{agent, runtime} {
		if err := restartedBySystemd(socket); err != nil {
			return err
		}
	}
	if err := p.rejectOtherUsers(agent, runtime); err != nil {
		return err
	}
	release := func() {}
	if p.Found.Runtime != nil {
		release = p.drain(ctx, agent, runtime)
	}
	err := p.endListener(ctx, agent, "podd")
	release()
	if err != nil {
		return err
	}
	if p.Found.Runtime != nil {
		if err := p.endRuntime(ctx, runtime); err != nil {
			return err
		}
	}
	// From here on until this process exits, nothing can start in these directories.
	if err := p.Found.Lock(); err != nil {
		return err
	}
	return p.cleanUp(ctx)
}

// endRuntime ends all pods and then their runtime.
func (p *Podd) endRuntime(ctx context.Context, socket string) error {
	if err := p.restartRuntimeForPods(ctx); err != nil {
		return err
	}
	if _, err := bundle.ListenerPID(socket); err == nil {
		if err := endPods(ctx, socket, p.Out); err != nil {
			return err
		}
	}
	return p.endListener(ctx, socket, "the container runtime")
}

// rejectOtherUsers returns an error if a process that End would not stop uses the directories: pods
// would lose volumes that are in use.
func (p *Podd) rejectOtherUsers(agentSocket, runtimeSocket string) error {
	agent, runtime, err := p.Found.LockHolders()
	if err != nil {
		return err
	}
	agentListens, noAgent := bundle.ListenerPID(agentSocket)
	runtimeListens, noRuntime := bundle.ListenerPID(runtimeSocket)
	switch {
	case agent != 0 && (noAgent != nil || agentListens != agent):
		return fmt.Errorf("%s is in use by a podd (process %d) that does not listen on %s; end it first", p.RootDir, agent, agentSocket)
	case runtime != 0 && (noRuntime != nil || runtimeListens != runtime):
		return fmt.Errorf("%s is in use by a container runtime (process %d) that does not listen on %s; end it first, or wait until it has started", p.RootDir, runtime, runtimeSocket)
	case noRuntime == nil && p.Found.Runtime == nil:
		return fmt.Errorf("%s is served by a container runtime (process %d) that is not podd's; nothing was ended", runtimeSocket, runtimeListens)
	}
	return nil
}
