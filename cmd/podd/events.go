package main

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

type eventsFlags struct {
	stateDir, namespace, output string
	all, watch                  bool
}

func newEventsCmd() *cobra.Command {
	f := &eventsFlags{}
	cmd := &cobra.Command{
		Use:   "events [POD]",
		Short: "List what happened to the pods of this node",
		Long: `List the events of the pods of this node, the newest at the end. podd keeps
the newest 1000 in memory, at most 50 of one pod; a restart of podd forgets them.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd events
  podd events web -n default
  podd events -w -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePods(&f.stateDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return f.run(cmd, name)
		},
	}
	addSocket(cmd, &f.stateDir)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only of this `namespace`")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "of all namespaces, which is the default")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with new events until interrupted")
	addOutput(cmd, &f.output, "json", "yaml")
	return cmd
}

func (f *eventsFlags) run(cmd *cobra.Command, name string) error {
	query := url.Values{"name": {name}, "namespace": {f.namespace}}
	if f.watch {
		query.Set("watch", "")
	}
	out := cmd.OutOrStdout()
	shown := map[string]int32{} // by name: how many repeats were shown
	return newClient(f.stateDir).get(cmd.Context(), "/podd/v1/events", query, func(decode func(any) error) error {
		var list v1.EventList
		if err := decode(&list); err != nil {
			return err
		}
		if f.output != "" && !f.watch {
			return writeObject(out, f.output, list)
		}
		fresh := freshEvents(list.Items, shown)
		if f.output != "" {
			for i := range fresh {
				if err := writeObject(out, f.output, fresh[i]); err != nil {
					return err
				}
			}
			return nil
		}
		return writeEvents(out, fresh, time.Now(), len(shown) == len(fresh), name)
	})
}

// freshEvents are those that were not shown yet, or not that often.
func freshEvents(all []v1.Event, shown map[string]int32) []v1.Event {
	var fresh []v1.Event
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if before, ok := shown[key]; !ok || before < e.Count {
			fresh = append(fresh, e)
			shown[key] = e.Count
		}
	}
	return fresh
}

// writeEvents writes events as kubectl events does, with a heading if it is the
// first table.
func writeEvents(w io.Writer, all []v1.Event, now time.Time, heading bool, name string) error {
	if len(all) == 0 {
		if !heading {
			return nil
		}
		what := "No events."
		if name != "" {
			what = fmt.Sprintf("No events of pod %s.", printable(name))
		}
		_, err := fmt.Fprintln(w, what)
		return err
	}
	t := newTable(w)
	if heading {
		fmt.Fprintln(t, "LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE")
	}
	for i := range all {
		e := &all[i]
		last := duration.HumanDuration(now.Sub(e.LastTimestamp.Time))
		if e.Count > 1 {
			last = fmt.Sprintf("%s (x%d over %s)", last, e.Count, duration.HumanDuration(now.Sub(e.FirstTimestamp.Time)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s/%s\t%s\n", last, e.Type, e.Reason,
			e.InvolvedObject.Namespace, e.InvolvedObject.Name, oneLine(e.Message))
	}
	return t.Flush()
}
