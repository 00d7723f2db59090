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
		Long: `List the objects that podd has read besides pods, as kubectl get does: how many keys
ConfigMaps and Secrets have, which claim is bound to which PersistentVolume or why it
is not (REASON), and which pods use the object. AGE counts from when podd first saw an
object of that name: an edit leaves it. -o wide also shows the manifest and the keys.

The values of ConfigMaps and Secrets are never shown, not even with -o json or -o yaml:
podd's socket does not serve them. NAME is an object's name, with or without
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
