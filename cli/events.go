package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/events"
	"podd/server"
)

// EventsOptions are the options of podd events.
type EventsOptions struct {
	StateDir string
	// Namespace and Pod (a name as given on the command line) select events;
	// empty means all.
	Namespace, Pod string
	// Output is json, yaml, or nothing for the table.
	Output string
	Watch  bool
	Since  Since
}

// Run prints the events once, or with Watch also new ones until ctx ends.
func (o *EventsOptions) Run(ctx context.Context, out, errOut io.Writer) error {
	name, err := parsePodName(o.Pod, o.Namespace)
	if err != nil {
		return err
	}
	begin, err := o.Since.begin(time.Now())
	if err != nil {
		return err
	}
	c := newClient(o.StateDir)
	p := eventPrinter{EventsOptions: o, name: name, begin: begin, shownCounts: map[string]int32{}, table: table{width: widthOf(out)}}
	checked := false
	return c.events(ctx, name, o.Watch, func(list v1.EventList) error {
		if len(list.Items) == 0 && name.name != "" && !checked {
			checked = true
			if err := c.checkPodExists(ctx, name); err != nil && !o.Watch {
				return err
			} else if err != nil {
				fmt.Fprintf(errOut, "%v; waiting for one\n", err)
			}
		}
		list.Items = slices.DeleteFunc(list.Items, func(e v1.Event) bool { return e.LastTimestamp.Time.Before(begin.Truncate(time.Second)) })
		return p.print(out, list)
	})
}

// checkPodExists returns an error with suggestions if there is no pod of that name.
func (c *client) checkPodExists(ctx context.Context, name podName) error {
	l, err := c.listPods(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(l.Pods, func(i server.PodInfo) bool { return name.matches(i.Pod) }) {
		return nil
	}
	return name.notFound(l)
}

// eventPrinter prints the daemon's responses one after the other.
type eventPrinter struct {
	*EventsOptions
	name        podName
	begin       time.Time        // the begin of what is shown; zero for all
	shownCounts map[string]int32 // by name: the count last shown
	headed      bool             // the heading is printed
	table       table
}

func (p *eventPrinter) print(out io.Writer, list v1.EventList) error {
	fresh := freshEvents(list.Items, p.shownCounts)
	switch {
	case p.Output != "" && !p.Watch:
		return WriteObject(out, p.Output, list)
	case p.Output != "":
		for i := range fresh {
			if err := WriteObject(out, p.Output, fresh[i]); err != nil {
				return err
			}
		}
		return nil
	case len(fresh) == 0 && p.Watch:
		return nil
	case len(fresh) == 0:
		what := "No events"
		if p.name.name != "" {
			what += " of pod " + p.name.String()
		}
		if !p.begin.IsZero() {
			what += " since " + p.begin.Local().Format(time.DateTime)
		}
		_, err := fmt.Fprintln(out, what+".")
		return err
	}
	rows := eventRows(fresh, !p.headed, time.Now())
	p.headed = true
	return p.table.write(out, rows)
}

// freshEvents returns the events that are new or have repeated since they were last shown.
func freshEvents(all []v1.Event, shown map[string]int32) []v1.Event {
	var fresh []v1.Event
	before := maps.Clone(shown)
	clear(shown) // drop events that the daemon dropped
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if count, ok := before[key]; !ok || count < e.Count {
			fresh = append(fresh, e)
		}
		shown[key] = e.Count
	}
	return fresh
}

// eventRows returns the columns of kubectl events.
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
			printable(objectName(e)), oneLine(e.Message)})
	}
	return rows
}

// objectName returns "NAMESPACE/POD" with the container, if any, or "Node/NAME", as kubectl writes
// it. No namespace has an upper-case letter.
func objectName(e *v1.Event) string {
	o := &e.InvolvedObject
	if o.Namespace == "" && o.Kind == "Node" {
		return o.Kind + "/" + o.Name
	}
	return o.Namespace + "/" + o.Name + containerSuffix(e)
}

// containerSuffix returns "/name" of the container that an event is about, if any.
func containerSuffix(e *v1.Event) string {
	if name := events.ContainerName(e); name != "" {
		return "/" + name
	}
	return ""
}
