package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

func newTopCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what pods and the node use of CPU and memory",
		Long: `Show what pods and the node use of CPU and memory, as kubectl top does, with no
metrics-server: podd reads it when it is asked. CPU is an average since somebody last
asked, over ten seconds or more where that was long enough ago; if nobody did in the
last five minutes, podd top measures for a second.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd top pods
  podd top pods --containers --sort-by=memory
  podd top node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTopPodsCmd(), newTopNodeCmd())
	return cmd
}

func newTopPodsCmd() *cobra.Command {
	o := &cli.TopOptions{}
	cmd := &cobra.Command{
		Use: "pods [POD...]", Aliases: []string{"pod", "po"},
		Short:             "Show what pods use of CPU and memory",
		ValidArgsFunction: completePods(&o.StateDir, &o.Namespace),
		PreRunE:           func(*cobra.Command, []string) error { return o.CheckSort() },
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pods = args
			return o.RunPods(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().BoolVar(&o.Containers, "containers", false, "show each container")
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "leave out the headings")
	cmd.Flags().StringVar(&o.SortBy, "sort-by", "", "sort by `resource`: cpu, memory")
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions([]string{"cpu", "memory"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func newTopNodeCmd() *cobra.Command {
	o := &cli.TopOptions{}
	cmd := &cobra.Command{
		Use: "node", Aliases: []string{"nodes", "no"},
		Short: "Show what the node uses of CPU and memory, of what the machine has",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.RunNode(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &o.StateDir)
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "leave out the headings")
	return cmd
}
