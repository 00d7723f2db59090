package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/events"
	"podd/server"
)

type eventsFlags struct {
	stateDir, namespace, output string
	watch                       bool
}

func newEventsCmd() *cobra.Command {
	f := &eventsFlags{}
	cmd := &cobra.Command{
		Use:   "events [POD]",
		Short: "List what happened to the pods of this node",
		Long: `List the events of the pods of this node, the newest at the end. podd keeps
the newest 1000 in memory, at most 50 of one pod; a restart of podd forgets them.
Repeats are counted, and after nine events of a pod with the same reason and
different messages further ones are combined into one.
A pod is called by its name or its manifest's, with or without namespace/.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd events
  podd events web
  podd events apps/job -w
  podd events -w -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeOnePod(&f.stateDir, &f.namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return f.run(cmd, name)
		},
	}
	addSocket(cmd, &f.stateDir)
	addNamespace(cmd, &f.stateDir, &f.namespace)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with new events until interrupted")
	addOutput(cmd, &f.output, "json", "yaml")
	return cmd
}

func (f *eventsFlags) run(cmd *cobra.Command, arg string) error {
	name, err := parsePodName(arg, f.namespace)
	if err != nil {
		return err
	}
	query := url.Values{"name": {name.name}, "namespace": {name.namespace}}
	if f.watch {
		query.Set("watch", "")
	}
	out := cmd.OutOrStdout()
	shown := map[string]int32{} // by name: how many repeats were shown
	first, checked := true, false
	t := table{width: widthOf(out)}
	return newClient(f.stateDir).get(cmd.Context(), "/podd/v1/events", query, func(decode func(any) error) error {
		var list v1.EventList
		if err := decode(&list); err != nil {
			return err
		}
		fresh := freshEvents(list.Items, shown)
		if len(list.Items) == 0 && name.name != "" && !checked {
			checked = true
			if err := f.exists(cmd.Context(), name); err != nil && !f.watch {
				return err
			} else if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%v; waiting for one\n", err)
			}
		}
		switch {
		case f.output != "" && !f.watch:
			return writeObject(out, f.output, list)
		case f.output != "":
			for i := range fresh {
				if err := writeObject(out, f.output, fresh[i]); err != nil {
					return err
				}
			}
			return nil
		case len(fresh) == 0 && f.watch:
			return nil
		case len(fresh) == 0:
			what := "No events"
			if name.name != "" {
				what += " of pod " + name.String()
			}
			_, err := fmt.Fprintln(out, what+" since podd started.")
			return err
		}
		rows := eventRows(fresh, first, time.Now())
		first = false
		return t.write(out, rows)
	})
}

// list asks for the events of a pod once.
func (f *eventsFlags) list(ctx context.Context, name podName) ([]v1.Event, error) {
	list := v1.EventList{Items: []v1.Event{}}
	err := newClient(f.stateDir).get(ctx, "/podd/v1/events", url.Values{"name": {name.name}, "namespace": {name.namespace}},
		func(decode func(any) error) error { return decode(&list) })
	return list.Items, err
}

// exists returns an error that says which pods are meant, perhaps, when there
// is none of that name.
func (f *eventsFlags) exists(ctx context.Context, name podName) error {
	l, err := listPods(ctx, f.stateDir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(l.Pods, func(i server.PodInfo) bool { return name.matches(i.Pod) }) {
		return nil
	}
	return name.missing(l)
}

// freshEvents are those that were not shown yet, or not that often.
func freshEvents(all []v1.Event, shown map[string]int32) []v1.Event {
	var fresh []v1.Event
	before := maps.Clone(shown)
	clear(shown) // what the daemon forgot is forgotten here
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if count, ok := before[key]; !ok || count < e.Count {
			fresh = append(fresh, e)
		}
		shown[key] = e.Count
	}
	return fresh
}

// eventRows are the columns of kubectl events.
func eventRows(all []v1.Event, heading bool, now time.Time) [][]string {
	var rows [][]string
	if heading {
		rows = append(rows, []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"})
	}
	for i := range all {
		e := &all[i]
		last := duration.HumanDuration(now.Sub(e.LastTimestamp.Time))
		if e.Count > 1 {
			last = fmt.Sprintf("%s (x%d over %s)", last, e.Count, duration.HumanDuration(now.Sub(e.FirstTimestamp.Time)))
		}
		rows = append(rows, []string{last, e.Type, printable(e.Reason),
			printable(e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name + container(e)), oneLine(e.Message)})
	}
	return rows
}

// container is "/name" of the container that an event is about, if of one.
func container(e *v1.Event) string {
	if name := events.ContainerOf(e); name != "" {
		return "/" + name
	}
	return ""
}
