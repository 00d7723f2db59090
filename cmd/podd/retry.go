package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"podd/server"
)

type retryFlags struct {
	stateDir, namespace string
	all                 bool
}

func newRetryCmd() *cobra.Command {
	f := &retryFlags{}
	cmd := &cobra.Command{
		Use:   "retry POD...",
		Short: "Try pods again at once that wait after failures",
		Long: `Try pods again at once: what waits in CrashLoopBackOff or ImagePullBackOff, or
because its node had no room, is tried now, and its waiting times begin anew.
Containers that run are left alone. A pod that has ended (Succeeded or Failed) and
is called by its name runs once more.

A pod is called by its name or its manifest's, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd retry web
  podd retry apps/job db
  podd retry --all`,
		ValidArgsFunction: completePods(&f.stateDir, &f.namespace),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !f.all:
				return &exitError{exitUsage, errors.New("name the pods to try again, or give --all")}
			case len(args) > 0 && f.all:
				return &exitError{exitUsage, errors.New("--all takes no names: leave out one of the two")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	addSocket(cmd, &f.stateDir)
	addNamespace(cmd, &f.stateDir, &f.namespace)
	cmd.Flags().BoolVar(&f.all, "all", false, "all pods that wait for anything, with -n those of that namespace")
	return cmd
}

func (f *retryFlags) run(cmd *cobra.Command, args []string) error {
	query := url.Values{}
	if f.all {
		query.Set("all", "")
		query.Set("namespace", f.namespace)
	} else if err := f.find(cmd, args, query); err != nil {
		return err
	}
	var answer server.Retried
	if err := newClient(f.stateDir).post(cmd.Context(), "/retry", query, &answer); err != nil {
		return err
	}
	for _, name := range answer.Pods {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is tried again\n", printable(name))
	}
	switch {
	case len(answer.Pods) > 0:
	case f.all:
		fmt.Fprintln(cmd.OutOrStdout(), "No pod waits.")
	default:
		return errors.New("the pod has just gone")
	}
	return nil
}

// find puts the full names of the pods that args mean into query.
func (f *retryFlags) find(cmd *cobra.Command, args []string, query url.Values) error {
	var names []podName
	for _, arg := range args {
		name, err := parsePodName(arg, f.namespace)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	l, err := listPods(cmd.Context(), f.stateDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		found := false
		for _, info := range l.Pods {
			if name.matches(info.Pod) {
				found = true
				query.Add("pod", info.Pod.Namespace+"/"+info.Pod.Name)
			}
		}
		if !found {
			return name.missing(l)
		}
	}
	return nil
}
