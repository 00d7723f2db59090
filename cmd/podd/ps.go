package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newPsCmd() *cobra.Command {
	o := &cli.PsOptions{}
	cmd := &cobra.Command{
		Use:     "ps [POD...]",
		Aliases: []string{"pods"},
		Short:   "List the pods of this node, and what is wrong with them",
		Long: `List the pods of this node as kubectl get pods does; then why containers do not run
or are not ready, and the manifests that podd could not use, with file, line and what
to do. A pod whose manifest was broken by an edit keeps running in its last good
version, and is marked as such.

With --events one pod is shown in detail: each of its containers, the conditions
that are not met, and its events. podd describe shows everything.

POD is a pod's name or the name in its manifest, with or without namespace/.
With -o json and -o yaml the output is a PodList with the additional field
"problems".

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd ps
  podd ps -n default -o wide
  podd ps -w
  podd ps --events web
  podd ps -o json | jq -r '.items[].status.podIP'`,
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "keep printing changes until interrupted")
	cmd.Flags().StringVar(&o.Events, "events", "", "show this `pod` in detail: its containers and its events")
	_ = cmd.RegisterFlagCompletionFunc("events", completeOnePod(&o.StateDir, &o.Namespace)) // the flag exists
	addOutput(cmd, &o.Output, "wide", "json", "yaml")
	return cmd
}
