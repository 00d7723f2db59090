package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podd/bundle"
	"podd/cgroup"
	"podd/internal/places"
)

// newRuntimeStopCmd is "podd runtime stop".
func newRuntimeStopCmd() *cobra.Command {
	flags, cgroupRoot := &runtimeFlags{}, ""
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End all pods, the container runtime and podd itself",
		Long: `End all pods, the bundled container runtime and the podd that uses it, and remove
what they made on this machine: network, volumes of pods, cgroups, the state
directory. Manifests, images and logs stay. That a pod has run to its end is
forgotten, too. A runtime that is gone (killed, say)
and left pods behind is started once more for that.

Which podd is meant, and what is its, is what it noted in its directories: of one
with other directories than the default ones either flag is enough. What holds a
volume that cannot be unmounted is named; nothing behind a mount is deleted.

Each container gets its pod's grace period, all at the same time; preStop hooks are
not run. Who needs them removes the manifests first, and waits until podd ps is empty.
Where systemd keeps podd running, stop the units first.`,
		Example: `  podd runtime stop

  # of several podds
  podd runtime stop --root-dir /srv/podd2`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := flags.find(cmd.Flags(), &cgroupRoot)
			if err != nil {
				return err
			}
			return flags.stop(cmd.Context(), found, cgroupRoot, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&cgroupRoot, "cgroup-root", cgroup.DefaultRoot, "cgroup that the pods' are below")
	return cmd
}

// find finds the podd that is meant, and sets the flags to what it noted.
func (f *runtimeFlags) find(given *pflag.FlagSet, cgroupRoot *string) (places.Found, error) {
	if os.Geteuid() != 0 {
		return places.Found{}, errors.New("stopping the container runtime needs root")
	}
	found, err := places.Find(places.Wanted{
		Root: f.rootDir, State: f.stateDir, RootGiven: given.Changed("root-dir"), StateGiven: given.Changed("state-dir"),
	})
	if err != nil {
		return found, err
	}
	f.rootDir, f.stateDir = found.Root, found.State
	if a := found.Agent; a != nil && !given.Changed("cgroup-root") {
		*cgroupRoot = a.CgroupRoot
	}
	if r := found.Runtime; r != nil && r.Bridge != "" {
		for _, noted := range []struct {
			flag, is string
			set      *string
		}{{"bridge", r.Bridge, &f.bridge}, {"pod-cidr", r.PodCIDR, &f.podCIDR}} {
			if given.Changed(noted.flag) && *noted.set != noted.is {
				return found, fmt.Errorf("--%s %s: the podd with root directory %s has %s; leave the flag away", noted.flag, *noted.set, found.Root, noted.is)
			}
			*noted.set = noted.is
		}
	}
	return found, nil
}

// stop goes from the top down: podd would start again what is ended under it.
func (f *runtimeFlags) stop(ctx context.Context, found places.Found, cgroupRoot string, out io.Writer) error {
	agent, runtime := filepath.Join(f.stateDir, "podd.sock"), bundle.Socket(f.stateDir)
	for _, socket := range []string{agent, runtime} {
		if err := keptBySystemd(socket); err != nil {
			return err
		}
	}
	if err := f.knownUsers(found, agent, runtime); err != nil {
		return err
	}
	if err := endListener(ctx, agent, out, "podd"); err != nil {
		return err
	}
	if found.Runtime != nil {
		if err := f.endRuntime(ctx, runtime, out); err != nil {
			return err
		}
	}
	// From here on to the end of this process nobody starts in these directories.
	if err := found.Lock(); err != nil {
		return err
	}
	return f.cleanUp(ctx, found, cgroupRoot, out)
}

// endRuntime ends all pods and then their runtime.
func (f *runtimeFlags) endRuntime(ctx context.Context, socket string, out io.Writer) error {
	if err := f.reviveForPods(ctx, out); err != nil {
		return err
	}
	if _, err := bundle.Listener(socket); err == nil {
		if err := endPods(ctx, socket, out); err != nil {
			return err
		}
	}
	return endListener(ctx, socket, out, "the container runtime")
}

// knownUsers refuses where somebody uses the directories who would not be ended:
// pods would lose their volumes under their hands.
func (f *runtimeFlags) knownUsers(found places.Found, agentSocket, runtimeSocket string) error {
	agent, runtime, err := found.Users()
	if err != nil {
		return err
	}
	agentListens, noAgent := bundle.Listener(agentSocket)
	runtimeListens, noRuntime := bundle.Listener(runtimeSocket)
	switch {
	case agent != 0 && (noAgent != nil || agentListens != agent):
		return fmt.Errorf("%s is in use by a podd (process %d) that does not listen on %s; end it first", f.rootDir, agent, agentSocket)
	case runtime != 0 && (noRuntime != nil || runtimeListens != runtime):
		return fmt.Errorf("%s is in use by a container runtime (process %d) that does not listen on %s; end it first, or wait until it has started", f.rootDir, runtime, runtimeSocket)
	case noRuntime == nil && found.Runtime == nil:
		return fmt.Errorf("%s is served by a container runtime (process %d) that is not podd's; nothing was ended", runtimeSocket, runtimeListens)
	}
	return nil
}
