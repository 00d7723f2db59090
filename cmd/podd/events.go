package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newEventsCmd() *cobra.Command {
	o := &cli.EventsOptions{}
	cmd := &cobra.Command{
		Use:   "events [POD]",
		Short: "List what happened to the pods of this node",
		Long: `List the events of the pods of this node, the newest last. podd keeps the newest
1000, at most 50 of each pod, over restarts of podd and of the machine. Repeated
events are counted, and after nine events of a pod with the same reason and
different messages, further ones are combined into one.
POD is a pod's name or the name in its manifest, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd events
  podd events web
  podd events apps/job -w
  podd events --since 1h
  podd events -w -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeOnePod(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.Pod = args[0]
			}
			return o.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "keep printing new events until interrupted")
	addSince(cmd, &o.Since)
	addOutput(cmd, &o.Output, "json", "yaml")
	return cmd
}
