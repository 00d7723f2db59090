package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"podd/server"
)

// askForCompletion is listPods for a shell that waits with its prompt: nothing
// rather than late.
func askForCompletion(cmd *cobra.Command, stateDir string) []server.PodInfo {
	ctx, stop := context.WithTimeout(cmd.Context(), time.Second)
	defer stop()
	l, err := listPods(ctx, stateDir)
	if err != nil {
		return nil
	}
	return l.Pods
}

// completePods completes names of pods that run now: of the namespace of -n, or
// as namespace/name once a slash was typed.
func completePods(stateDir, namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, info := range askForCompletion(cmd, *stateDir) {
			p := info.Pod
			name := p.Name
			if strings.Contains(written, "/") {
				name = p.Namespace + "/" + p.Name
			}
			if (*namespace == "" || *namespace == p.Namespace) && strings.HasPrefix(name, written) && !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOnePod is completePods for commands that take one.
func completeOnePod(stateDir, namespace *string) cobra.CompletionFunc {
	many := completePods(stateDir, namespace)
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return many(cmd, args, written)
	}
}

// addNamespace gives a command -n and -A.
func addNamespace(cmd *cobra.Command, stateDir, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "only of this `namespace`")
	cmd.Flags().BoolP("all-namespaces", "A", false, "of all namespaces, which is the default")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, info := range askForCompletion(cmd, *stateDir) {
			all = append(all, info.Pod.Namespace)
		}
		slices.SortFunc(all, cmp.Compare[string])
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}
