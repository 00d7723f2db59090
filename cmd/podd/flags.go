package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"podd/cli"
	"podd/internal/instance"
)

// addSocket adds the flag for the daemon's socket to a command.
func addSocket(cmd *cobra.Command, stateDir *string) {
	cmd.Flags().StringVar(stateDir, "state-dir", instance.DefaultStateDir, "`directory` of the daemon's socket")
}

// addNamespace adds -n and -A to a command.
func addNamespace(cmd *cobra.Command, stateDir, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "only this `namespace`")
	cmd.Flags().BoolP("all-namespaces", "A", false, "all namespaces (the default)")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return cli.CompleteNamespaces(cmd.Context(), *stateDir), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}

// addSince adds --since and --since-time, as kubectl logs has them.
func addSince(cmd *cobra.Command, s *cli.Since) {
	cmd.Flags().DurationVar(&s.Ago, "since", 0, "only what is newer than a `duration` such as 5s, 2m, or 3h")
	cmd.Flags().StringVar(&s.Time, "since-time", "", "only what is newer than a `time` as in RFC 3339")
}

// addOutput adds -o to a command, with its formats and their completion.
func addOutput(cmd *cobra.Command, output *string, formats ...string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "output `format`: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "" && !slices.Contains(formats, *output) {
			return cli.UsageErrorf("-o %s: give one of %s", *output, strings.Join(formats, ", "))
		}
		return nil
	}
}

// completePods completes the names of running pods.
func completePods(stateDir, namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		names := cli.CompletePods(cmd.Context(), *stateDir, *namespace, written)
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOnePod is completePods for commands that accept one pod.
func completeOnePod(stateDir, namespace *string) cobra.CompletionFunc {
	many := completePods(stateDir, namespace)
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return many(cmd, args, written)
	}
}
