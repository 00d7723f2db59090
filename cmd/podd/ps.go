package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/internal/pod"
	"podd/server"
)

type psFlags struct {
	stateDir, namespace, output, events string
	all, watch                          bool
}

func newPsCmd() *cobra.Command {
	f := &psFlags{}
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"pods"},
		Short:   "List the pods of this node, and what is wrong with manifests",
		Long: `List the pods of this node as kubectl get pods would, and then the manifests
that podd could not use, with file, line and what to do. A pod whose manifest
was broken by an edit runs on in its last good version, and is marked so.

Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd ps
  podd ps -n default -o wide
  podd ps -w
  podd ps --events web
  podd ps -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.events != "" {
				e := &eventsFlags{stateDir: f.stateDir, namespace: f.namespace, output: f.output, watch: f.watch}
				return e.run(cmd, f.events)
			}
			return f.run(cmd)
		},
	}
	addSocket(cmd, &f.stateDir)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only of this `namespace`")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "of all namespaces, which is the default")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with changes until interrupted")
	cmd.Flags().StringVar(&f.events, "events", "", "list the events of this `pod` instead")
	_ = cmd.RegisterFlagCompletionFunc("events", completePods(&f.stateDir)) // the flag exists
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	addOutput(cmd, &f.output, "wide", "json", "yaml")
	return cmd
}

func (f *psFlags) run(cmd *cobra.Command) error {
	query := url.Values{}
	if f.watch {
		query.Set("watch", "")
	}
	out := cmd.OutOrStdout()
	var before []string
	return newClient(f.stateDir).get(cmd.Context(), "/podd/v1/pods", query, func(decode func(any) error) error {
		var l server.Listing
		if err := decode(&l); err != nil {
			return err
		}
		l = f.only(l)
		if f.output == "json" || f.output == "yaml" {
			return writeObject(out, f.output, l)
		}
		if !f.watch || isTerminal(out) {
			if f.watch {
				fmt.Fprint(out, "\x1b[H\x1b[2J")
			}
			return writePods(out, l, f.output == "wide", time.Now())
		}
		// Through a pipe: the lines that changed.
		lines := podLines(l, f.output == "wide", time.Now())
		if before == nil {
			fmt.Fprintln(out, strings.ReplaceAll(heading(f.output == "wide"), "\t", "   "))
		}
		for _, line := range lines {
			if !slices.Contains(before, line.key) {
				fmt.Fprintln(out, strings.ReplaceAll(line.text, "\t", "   "))
			}
		}
		before = []string{}
		for _, line := range lines {
			before = append(before, line.key)
		}
		return nil
	})
}

func (f *psFlags) only(l server.Listing) server.Listing {
	if f.namespace == "" {
		return l
	}
	l.Pods = slices.DeleteFunc(l.Pods, func(p server.PodInfo) bool { return p.Pod.Namespace != f.namespace })
	l.Problems = slices.DeleteFunc(l.Problems, func(p pod.Problem) bool {
		return p.Pod != "" && !strings.HasPrefix(p.Pod, f.namespace+"/")
	})
	return l
}

// completePods completes names of pods that run now.
func completePods(stateDir *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(cmd.Context(), time.Second)
		defer stop()
		var l server.Listing
		err := newClient(*stateDir).get(ctx, "/podd/v1/pods", nil, func(decode func(any) error) error { return decode(&l) })
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range l.Pods {
			names = append(names, p.Pod.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// podLine is a line of the table; key leaves out what changes by itself.
type podLine struct{ text, key string }

const (
	podHeading     = "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE\tIP"
	podHeadingWide = podHeading + "\tNODE\tIMAGES\tSOURCE\tUID"
)

func heading(wide bool) string {
	if wide {
		return podHeadingWide
	}
	return podHeading
}

func podLines(l server.Listing, wide bool, now time.Time) []podLine {
	kept := map[string]bool{}
	for _, p := range l.Problems {
		if p.KeptRunning && p.Pod != "" {
			kept[p.Pod] = true
		}
	}
	var lines []podLine
	for _, info := range l.Pods {
		p := info.Pod
		s := summarize(p)
		if kept[p.Namespace+"/"+p.Name] {
			s.status += " (last good manifest)"
		}
		restarts := strconv.Itoa(s.restarts)
		if s.restarts > 0 && !s.lastRestart.IsZero() {
			restarts += " (" + duration.HumanDuration(now.Sub(s.lastRestart)) + " ago)"
		}
		columns := []string{p.Namespace, p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts,
			age(p, now), cmp.Or(p.Status.PodIP, "<none>")}
		key := []string{p.Namespace, p.Name, columns[2], s.status, strconv.Itoa(s.restarts), columns[6]}
		if wide {
			var images []string
			for _, c := range p.Spec.Containers {
				images = append(images, c.Image)
			}
			columns = append(columns, cmp.Or(p.Spec.NodeName, "<none>"), strings.Join(images, ","),
				cmp.Or(info.Origin, "<none>"), string(p.UID))
		}
		for i := range columns {
			columns[i] = printable(columns[i])
		}
		lines = append(lines, podLine{strings.Join(columns, "\t"), strings.Join(key, " ")})
	}
	return lines
}

func age(p *v1.Pod, now time.Time) string {
	switch {
	case !p.CreationTimestamp.IsZero():
		return duration.HumanDuration(now.Sub(p.CreationTimestamp.Time))
	case p.Status.StartTime != nil:
		return duration.HumanDuration(now.Sub(p.Status.StartTime.Time))
	}
	return "<unknown>"
}

// writePods writes the table and then the problems.
func writePods(w io.Writer, l server.Listing, wide bool, now time.Time) error {
	if len(l.Pods) == 0 {
		fmt.Fprintln(w, "No pods. Put a manifest into the manifest directory (staticPodPath) and it runs.")
	} else {
		t := newTable(w)
		fmt.Fprintln(t, heading(wide))
		for _, line := range podLines(l, wide, now) {
			fmt.Fprintln(t, line.text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return writeProblems(w, l.Problems)
}

func writeProblems(w io.Writer, all []pod.Problem) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s with manifests:\n", count(len(all), "problem"))
	for _, p := range all {
		fmt.Fprintf(w, "  %s\n", describeProblem(p))
	}
	return nil
}

func describeProblem(p pod.Problem) string {
	where := p.Origin
	if p.Line > 0 {
		where += ":" + strconv.Itoa(p.Line)
	} else if p.Document > 1 {
		where += fmt.Sprintf(" (document %d)", p.Document)
	}
	var b strings.Builder
	b.WriteString(where + ": ")
	if p.Pod != "" {
		b.WriteString("pod " + p.Pod + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.KeptRunning {
		b.WriteString(" [the last good version keeps running]")
	}
	return oneLine(b.String())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// oneLine keeps a message in its row.
func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }), " "))
}
