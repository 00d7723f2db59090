package main

import (
	"strings"

	"github.com/spf13/cobra"

	"podd/cli"
)

func newGetCmd() *cobra.Command {
	o := &cli.GetOptions{}
	cmd := &cobra.Command{
		Use:   "get configmaps|secrets|pv|pvc [NAME...]",
		Short: "List the ConfigMaps, Secrets, PersistentVolumes and claims of this node",
		Long: `List what podd has read beside the pods' manifests, as kubectl get does: how many
keys ConfigMaps and Secrets have, which claim has which PersistentVolume, and why not
(REASON); how old this version is, and which pods name it. With -o wide also where
the document is, and which keys there are.

What ConfigMaps and Secrets hold is never shown: not by -o json or -o yaml either, and
podd's socket does not tell it. An object is called by its name, with or without
namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd get configmaps
  podd get secrets -n default -o wide
  podd get cm settings -o yaml
  podd get pvc -o wide`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return cli.Resources(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Resource, o.Names = args[0], args[1:]
			if kind, name, ok := strings.Cut(args[0], "/"); ok { // as in kubectl
				o.Resource, o.Names = kind, append([]string{name}, args[1:]...)
			}
			return o.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	addOutput(cmd, &o.Output, "wide", "json", "yaml", "name")
	return cmd
}
