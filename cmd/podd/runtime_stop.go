package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podd/cgroup"
	"podd/internal/instance"
	"podd/node/teardown"
)

// newRuntimeStopCmd returns "podd runtime stop".
func newRuntimeStopCmd() *cobra.Command {
	flags, cgroupRoot := &runtimeFlags{}, ""
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop all pods, the container runtime and podd itself",
		Long: `Stop all pods, the bundled container runtime and the podd that uses it, and remove
what they created on this machine: network, volumes of pods, cgroups, the state
directory. Manifests, images and logs are kept. Completed pods run again if podd is
started again. A runtime that is gone (killed, for example) and left pods behind is
started again to clean up.

podd records in its directories what belongs to it: to stop a podd with
directories other than the defaults, either flag is enough. If a volume cannot be
unmounted, the process that holds it is named; nothing behind a mount is deleted.

A running podd stops its pods itself, all at the same time, with their preStop hooks
and grace periods. What is left then, or if podd does not run, is stopped through the
container runtime, with grace periods but without hooks. Where systemd keeps podd
running, stop the units first; to run the hooks there, remove the manifests before that
and wait until podd ps is empty.`,
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
			all := teardown.Podd{Runtime: flags.Runtime, Found: found, CgroupRoot: cgroupRoot, Out: cmd.OutOrStdout()}
			return all.End(cmd.Context())
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&cgroupRoot, "cgroup-root", cgroup.DefaultRoot, "cgroup that the pods' are below")
	return cmd
}

// find finds the podd to stop, and sets the flags to the values that it recorded.
func (f *runtimeFlags) find(given *pflag.FlagSet, cgroupRoot *string) (instance.Instance, error) {
	if os.Geteuid() != 0 {
		return instance.Instance{}, errors.New("stopping the container runtime needs root")
	}
	found, err := instance.Find(instance.Selector{
		Root: f.RootDir, State: f.StateDir, RootGiven: given.Changed("root-dir"), StateGiven: given.Changed("state-dir"),
	})
	if err != nil {
		return found, err
	}
	f.RootDir, f.StateDir = found.Root, found.State
	if a := found.Agent; a != nil && !given.Changed("cgroup-root") {
		*cgroupRoot = a.CgroupRoot
	}
	if r := found.Runtime; r != nil && r.Bridge != "" {
		for _, recorded := range []struct {
			flag, is string
			set      *string
		}{{"bridge", r.Bridge, &f.Bridge}, {"pod-cidr", r.PodCIDR, &f.PodCIDR}} {
			if recorded.is == "" {
				continue // nobody set one
			}
			if given.Changed(recorded.flag) && *recorded.set != recorded.is {
				return found, fmt.Errorf("--%s %s: the podd with root directory %s has %s; omit the flag", recorded.flag, *recorded.set, found.Root, recorded.is)
			}
			*recorded.set = recorded.is
		}
	}
	return found, nil
}
