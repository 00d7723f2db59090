package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newInspectCmd() *cobra.Command {
	o := &cli.InspectOptions{}
	cmd := &cobra.Command{
		Use:   "inspect POD",
		Short: "Compare what the container runtime was given with what the manifest asks for",
		Long: `Show, for each container of a pod, what the container runtime really gave its OCI
runtime (user, capabilities, seccomp, namespaces, cgroup, limits, mounts, devices,
environment) beside what the manifest asks for. Lines that differ are marked
with "!". containerd and CRI-O report this; if a runtime does not, the command says
so.

Values of Secrets are never shown: of the environment, only values that the manifest
has literally are shown, all others are <masked>, also in command lines and with
-o json. -o json and -o yaml include the OCI specification itself (runtimeSpec).

POD is a pod's name, the name in its manifest, or an unambiguous prefix of a pod's
name, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd inspect web
  podd inspect web -c proxy
  podd inspect web -o json | jq '.containers[0].runtimeSpec.mounts'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeOnePod(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pod = args[0]
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "only this `container`")
	addOutput(cmd, &o.Output, "json", "yaml")
	return cmd
}
