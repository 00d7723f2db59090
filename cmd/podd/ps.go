package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/server"
)

type psFlags struct {
	stateDir, namespace, output, events string
	watch                               bool
	names                               []podName
}

func newPsCmd() *cobra.Command {
	f := &psFlags{}
	cmd := &cobra.Command{
		Use:     "ps [POD...]",
		Aliases: []string{"pods"},
		Short:   "List the pods of this node, and what is wrong with them",
		Long: `List the pods of this node as kubectl get pods would; below them, why containers
do not run or are not ready, and then the manifests that podd could not use, with
file, line and what to do. A pod whose manifest was broken by an edit runs on in its last good
version, and is marked so.

With --events one pod is shown more closely, as kubectl describe does: each of its
containers, the conditions that do not hold, and what happened to it.

A pod is called by its name or its manifest's, with or without namespace/.
With -o json and -o yaml the answer is a PodList that has, beyond the API's own
fields, the list "problems".

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd ps
  podd ps -n default -o wide
  podd ps -w
  podd ps --events web
  podd ps -o json | jq -r '.items[].status.podIP'`,
		ValidArgsFunction: completePods(&f.stateDir, &f.namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.events != "" {
				return f.runEvents(cmd, args)
			}
			for _, arg := range args {
				name, err := parsePodName(arg, f.namespace)
				if err != nil {
					return err
				}
				f.names = append(f.names, name)
			}
			return f.run(cmd)
		},
	}
	addSocket(cmd, &f.stateDir)
	addNamespace(cmd, &f.stateDir, &f.namespace)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with changes until interrupted")
	cmd.Flags().StringVar(&f.events, "events", "", "show this `pod` more closely: its containers and its events")
	_ = cmd.RegisterFlagCompletionFunc("events", completeOnePod(&f.stateDir, &f.namespace)) // the flag exists
	addOutput(cmd, &f.output, "wide", "json", "yaml")
	return cmd
}

func (f *psFlags) runEvents(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &exitError{exitUsage, fmt.Errorf("--events takes one pod and no more names: %s", strings.Join(args, " "))}
	}
	name, err := parsePodName(f.events, f.namespace)
	if err != nil {
		return err
	}
	all, err := listPods(cmd.Context(), f.stateDir)
	if err != nil {
		return err
	}
	l, out := restrict(all, name), cmd.OutOrStdout()
	e := &eventsFlags{stateDir: f.stateDir, namespace: f.namespace, output: f.output, watch: f.watch}
	switch f.output {
	case "json", "yaml":
		if f.watch {
			break // of a pod that is being watched, what happens to it
		}
		if len(l.Pods) == 0 {
			return name.missing(all)
		}
		events, err := e.list(cmd.Context(), name)
		if err != nil {
			return err
		}
		return writeObject(out, f.output, described{podList(l), events})
	default:
		e.output = ""
		if len(l.Pods) > 0 {
			v := view{wide: f.output == "wide", width: widthOf(out), filtered: true}
			if err := v.describe(out, l, time.Now()); err != nil {
				return err
			}
			fmt.Fprintln(out, "\nEvents:")
		}
	}
	return e.run(cmd, f.events)
}

func (f *psFlags) run(cmd *cobra.Command) error {
	query := url.Values{}
	if f.watch {
		query.Set("watch", "")
	}
	out := cmd.OutOrStdout()
	v := view{wide: f.output == "wide", width: widthOf(out), filtered: f.namespace != "" || len(f.names) > 0}
	stream := watchStream{view: v}
	return newClient(f.stateDir).get(cmd.Context(), "/podd/v1/pods", query, func(decode func(any) error) error {
		var all server.Listing
		if err := decode(&all); err != nil {
			return err
		}
		l := f.only(all)
		if !f.watch {
			for _, name := range f.names {
				if !known(name, l) {
					return name.unknown(all.Pods)
				}
			}
		}
		switch {
		case f.output == "json" || f.output == "yaml":
			return writeObject(out, f.output, podList(l))
		case f.watch && isTerminal(out):
			fmt.Fprint(out, "\x1b[H\x1b[2J")
			return v.write(out, l, time.Now())
		case f.watch:
			return stream.write(out, l, time.Now())
		}
		return v.write(out, l, time.Now())
	})
}

// only leaves what was asked for.
func (f *psFlags) only(l server.Listing) server.Listing {
	wanted := func(p *v1.Pod) bool {
		return (f.namespace == "" || f.namespace == p.Namespace) &&
			(len(f.names) == 0 || slices.ContainsFunc(f.names, func(n podName) bool { return n.matches(p) }))
	}
	node := nodeOf(l)
	concerned := func(p pod.Problem) bool {
		return (f.namespace == "" || p.Pod == "" || strings.HasPrefix(p.Pod, f.namespace+"/")) &&
			(len(f.names) == 0 || slices.ContainsFunc(f.names, func(n podName) bool { return n.concerns(p, node) }))
	}
	var only server.Listing
	for _, info := range l.Pods {
		if wanted(info.Pod) {
			only.Pods = append(only.Pods, info)
		}
	}
	for _, p := range l.Problems {
		if concerned(p) {
			only.Problems = append(only.Problems, p)
		}
	}
	return only
}

// nodeOf is this node's name, as its pods say it.
func nodeOf(l server.Listing) string {
	for _, info := range l.Pods {
		if info.Pod.Spec.NodeName != "" {
			return info.Pod.Spec.NodeName
		}
	}
	return ""
}

func known(n podName, l server.Listing) bool {
	node := nodeOf(l)
	return slices.ContainsFunc(l.Pods, func(i server.PodInfo) bool { return n.matches(i.Pod) }) ||
		slices.ContainsFunc(l.Problems, func(p pod.Problem) bool { return n.concerns(p, node) })
}

// psList is a v1.PodList to whoever reads one, and has the problems too.
type psList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []*v1.Pod     `json:"items"`
	Problems        []pod.Problem `json:"problems"`
}

// annotationOrigin says, in the output of podd ps, where a pod's manifest is.
const annotationOrigin = "podd/origin"

func podList(l server.Listing) psList {
	list := psList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items: []*v1.Pod{}, Problems: append([]pod.Problem{}, l.Problems...)}
	for _, info := range l.Pods {
		p := *info.Pod
		p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		if info.Origin != "" {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotationOrigin, info.Origin)
		}
		list.Items = append(list.Items, &p)
	}
	return list
}

// watchStream writes what changed, line by line, for a reader that is a program.
type watchStream struct {
	view
	before []string
	table  table
}

func (s *watchStream) write(out io.Writer, l server.Listing, now time.Time) error {
	var rows [][]string
	if s.before == nil {
		rows = append(rows, s.heading())
	}
	keys := []string{}
	for _, row := range s.pods(l, now) {
		if keys = append(keys, row.key); !slices.Contains(s.before, row.key) {
			rows = append(rows, row.cells)
		}
	}
	if err := s.table.write(out, rows); err != nil {
		return err
	}
	for _, line := range slices.Concat(s.reasons(l, now), unready(l), problemLines(l)) {
		if keys = append(keys, line.key); !slices.Contains(s.before, line.key) {
			paragraph(out, 2, line.text, 0)
		}
	}
	s.before = keys
	return nil
}
