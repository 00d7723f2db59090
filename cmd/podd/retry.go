package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newRetryCmd() *cobra.Command {
	o := &cli.RetryOptions{}
	cmd := &cobra.Command{
		Use:   "retry POD...",
		Short: "Retry waiting pods at once",
		Long: `Retry pods at once: containers in CrashLoopBackOff or ImagePullBackOff, and pods
that were rejected for lack of resources, are retried now, and their back-offs are
reset. Running containers are left alone. A pod that has completed (Succeeded or
Failed) runs once more if it is named.

POD is a pod's name or the name in its manifest, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd retry web
  podd retry apps/job db
  podd retry --all`,
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !o.All:
				return cli.UsageErrorf("name the pods to retry, or give --all")
			case len(args) > 0 && o.All:
				return cli.UsageErrorf("--all takes no names: leave out one of the two")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().BoolVar(&o.All, "all", false, "all pods that wait for anything, of the namespace of -n if given")
	return cmd
}
