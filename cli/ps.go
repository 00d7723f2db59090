package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/server"
)

// PsOptions are the options of podd ps.
type PsOptions struct {
	StateDir string
	// Namespace and Pods (names as given on the command line) select pods; empty
	// means all.
	Namespace string
	Pods      []string
	// Events selects one pod to show in detail, with its containers and events.
	Events string
	// Output is wide, json, yaml, or empty for the table.
	Output string
	Watch  bool
}

// Run prints the pods once, or with Watch after each change until ctx ends.
func (o *PsOptions) Run(ctx context.Context, out, errOut io.Writer) error {
	if o.Events != "" {
		return o.printWithEvents(ctx, out, errOut)
	}
	names, err := parsePodNames(o.Pods, o.Namespace)
	if err != nil {
		return err
	}
	filter := podFilter{o.Namespace, names}
	v := view{wide: o.Output == "wide", width: widthOf(out), filtered: o.Namespace != "" || len(names) > 0}
	stream := watchStream{view: v}
	return newClient(o.StateDir).pods(ctx, o.Watch, func(all server.Listing) error {
		l := filter.apply(all)
		if !o.Watch {
			for _, name := range names {
				if !name.matchesAny(l) {
					return name.notFoundAmong(all.Pods)
				}
			}
		}
		switch {
		case o.Output == "json" || o.Output == "yaml":
			return WriteObject(out, o.Output, podList(l))
		case o.Watch && isTerminal(out):
			fmt.Fprint(out, "\x1b[H\x1b[2J")
			return v.write(out, l, time.Now())
		case o.Watch:
			return stream.write(out, l, time.Now())
		}
		return v.write(out, l, time.Now())
	})
}

// podFilter selects pods; empty means all.
type podFilter struct {
	namespace string
	names     []podName
}

// apply returns the selected pods.
func (f podFilter) apply(l server.Listing) server.Listing {
	wanted := func(p *v1.Pod) bool {
		return (f.namespace == "" || f.namespace == p.Namespace) &&
			(len(f.names) == 0 || slices.ContainsFunc(f.names, func(n podName) bool { return n.matches(p) }))
	}
	node := nodeOf(l)
	concerned := func(p pod.Problem) bool {
		return (f.namespace == "" || p.Pod == "" || strings.HasPrefix(p.Pod, f.namespace+"/")) &&
			(len(f.names) == 0 || slices.ContainsFunc(f.names, func(n podName) bool { return n.matchesProblem(p, node) }))
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

// psList decodes as a v1.PodList, and also has the problems.
type psList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []*v1.Pod     `json:"items"`
	Problems        []pod.Problem `json:"problems"`
}

// annotationOrigin is the annotation that names a pod's manifest in the output
// of podd ps.
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

// watchStream writes changes line by line, for programs.
type watchStream struct {
	view
	shownKeys []string
	table     table
}

func (s *watchStream) write(out io.Writer, l server.Listing, now time.Time) error {
	var rows [][]string
	if s.shownKeys == nil {
		rows = append(rows, s.heading())
	}
	keys := []string{}
	for _, row := range s.pods(l, now) {
		if keys = append(keys, row.key); !slices.Contains(s.shownKeys, row.key) {
			rows = append(rows, row.cells)
		}
	}
	if err := s.table.write(out, rows); err != nil {
		return err
	}
	for _, line := range slices.Concat(s.notRunningLines(l, now), notReadyLines(l), problemLines(l)) {
		if keys = append(keys, line.key); !slices.Contains(s.shownKeys, line.key) {
			paragraph(out, 2, line.text, 0)
		}
	}
	s.shownKeys = keys
	return nil
}
