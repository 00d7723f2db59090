package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newRestartCmd() *cobra.Command {
	o := &cli.RestartOptions{}
	cmd := &cobra.Command{
		Use:   "restart POD[/CONTAINER]...",
		Short: "Restart the containers of pods",
		Long: `Restart the containers of pods, or single ones: each ends within its grace period,
with its preStop hook, and is started again at once. With a whole pod, sidecars end
last and init containers run again. The pod keeps its UID, its address and its
emptyDirs; logs and restart counts go on.

A pod that has run to its end is not restarted: podd retry runs it once more.

POD is a pod's name or the name in its manifest, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd restart web
  podd restart web/proxy
  podd restart apps/web db`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	return cmd
}
