package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newDescribeCmd() *cobra.Command {
	o := &cli.DescribeOptions{}
	cmd := &cobra.Command{
		Use:   "describe [POD...]",
		Short: "Show everything about pods: spec, status, volumes, events, problems",
		Long: `Show pods as kubectl describe pod does: containers with their states, limits,
probes, environment and mounts, conditions, volumes, events. podd adds where each
volume is on this host ("Bound To"), why a container waits or is not ready, the
manifest, and what is wrong with it.

POD is a pod's name or the name in its manifest, with or without namespace/; if there
is no such pod, all pods whose names begin with it are shown. Without arguments, all
pods are shown. Values in the manifest itself are shown, values of ConfigMaps and
Secrets never. With -o json and -o yaml the output is that of podd ps --events.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd describe web
  podd describe apps/job db
  podd describe -n apps`,
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	addOutput(cmd, &o.Output, "json", "yaml")
	return cmd
}
