package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newLogsCmd() *cobra.Command {
	o := &cli.LogsOptions{}
	cmd := &cobra.Command{
		Use:   "logs POD...",
		Short: "Print the logs of containers",
		Long: `Print the logs of a pod's container, or of several pods, with the flags of kubectl
logs. Without -c, that is the container that the annotation
kubectl.kubernetes.io/default-container names, or the first.

-f goes on over the rotations of a log, and ends with its container.

POD is a pod's name, the name in its manifest, or an unambiguous prefix of a pod's
name, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd logs web
  podd logs -f --tail=20 web
  podd logs --previous -c proxy apps/web
  podd logs --all-containers --prefix web db`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	f := cmd.Flags()
	f.StringVarP(&o.Container, "container", "c", "", "of this `container`")
	f.BoolVar(&o.AllContainers, "all-containers", false, "of all containers of each pod")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on as the containers write")
	f.BoolVarP(&o.Previous, "previous", "p", false, "of the container's last life")
	f.BoolVar(&o.Timestamps, "timestamps", false, "with the time of each line")
	f.BoolVar(&o.Prefix, "prefix", false, "with pod and container before each line")
	f.BoolVar(&o.IgnoreErrors, "ignore-errors", false, "with -f or several logs, go on when one of them cannot be read")
	f.Int64Var(&o.Tail, "tail", -1, "only so many last `lines`; -1 for all")
	addSince(cmd, &o.Since)
	f.Int64Var(&o.LimitBytes, "limit-bytes", 0, "at most so many `bytes` of each log; 0 for all")
	f.IntVar(&o.MaxRequests, "max-log-requests", 5, "how many logs may be followed at a time")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	return cmd
}
