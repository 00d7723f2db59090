// Package teardown ends a podd for good, from the outside: the process, its pods,
// the bundled runtime, and then what outlives them. It goes by what podd recorded about
// itself (internal/instance), and needs no podd that runs.
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

// Podd is the podd that is to be ended. The caller is root.
type Podd struct {
	// Runtime has the directories and the network that podd recorded.
	bundled.Runtime
	// Found is what podd recorded about itself.
	Found instance.Found
	// CgroupRoot is the group that the pods' are below.
	CgroupRoot string
	// Out is told what is done.
	Out io.Writer
}

// End goes from the top down: podd stops its pods, if it runs, and is ended before what
// is left of them: it would start that again. It
// blocks for as long as the pods' grace periods and the runtime take. What could
// not be taken away is named by the error, and is taken up by another End.
func (p *Podd) End(ctx context.Context) error {
	agent, runtime := filepath.Join(p.StateDir, "podd.sock"), bundle.Socket(p.StateDir)
	for _, socket := range []string{agent, runtime} {
		if err := keptBySystemd(socket); err != nil {
			return err
		}
	}
	if err := p.knownUsers(agent, runtime); err != nil {
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
	// From here on to the end of this process nobody starts in these directories.
	if err := p.Found.Lock(); err != nil {
		return err
	}
	return p.cleanUp(ctx)
}

// endRuntime ends all pods and then their runtime.
func (p *Podd) endRuntime(ctx context.Context, socket string) error {
	if err := p.reviveForPods(ctx); err != nil {
		return err
	}
	if _, err := bundle.Listener(socket); err == nil {
		if err := endPods(ctx, socket, p.Out); err != nil {
			return err
		}
	}
	return p.endListener(ctx, socket, "the container runtime")
}

// knownUsers is an error where somebody uses the directories who would not be ended:
// pods would lose their volumes under their hands.
func (p *Podd) knownUsers(agentSocket, runtimeSocket string) error {
	agent, runtime, err := p.Found.Users()
	if err != nil {
		return err
	}
	agentListens, noAgent := bundle.Listener(agentSocket)
	runtimeListens, noRuntime := bundle.Listener(runtimeSocket)
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
