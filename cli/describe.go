package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/server"
)

// DescribeOptions are the options of podd describe.
type DescribeOptions struct {
	StateDir string
	// Pods are names as given on the command line, or prefixes. If empty, all pods are shown;
	// if Namespace is set, all in that namespace.
	Pods      []string
	Namespace string
	// Output is json, yaml, or empty for text.
	Output string
}

// Run prints the pods one after the other.
func (o *DescribeOptions) Run(ctx context.Context, out io.Writer) error {
	names, err := parsePodNames(o.Pods, o.Namespace)
	if err != nil {
		return err
	}
	c := newClient(o.StateDir)
	all, err := c.listPods(ctx)
	if err != nil {
		return err
	}
	found, err := o.find(all, names)
	if err != nil {
		return err
	}
	if o.Output != "" {
		return o.encode(ctx, c, out, found)
	}
	if len(found.Pods) == 0 {
		fmt.Fprintln(out, "No such pods.")
	}
	for i, info := range found.Pods {
		if i > 0 {
			fmt.Fprint(out, "\n\n")
		}
		d, err := c.fetchDescription(ctx, info, all)
		if err != nil {
			return err
		}
		if err := d.write(out); err != nil {
			return err
		}
	}
	return nil
}

// find returns the selected pods, each once, with their problems.
func (o *DescribeOptions) find(all server.Listing, names []podName) (server.Listing, error) {
	if len(names) == 0 {
		return podFilter{namespace: o.Namespace}.apply(all), nil
	}
	found := podFilter{names: names}.apply(all)
	found.Pods = nil
	for _, name := range names {
		pods := name.find(all.Pods)
		if len(pods) == 0 {
			return found, name.notFound(all)
		}
		for _, info := range pods {
			if !slices.ContainsFunc(found.Pods, func(f server.PodInfo) bool { return f.Pod.UID == info.Pod.UID }) {
				found.Pods = append(found.Pods, info)
			}
		}
	}
	return found, nil
}

// encode writes the output for programs, like podd ps --events but for any number of pods.
func (o *DescribeOptions) encode(ctx context.Context, c *client, out io.Writer, found server.Listing) error {
	answer := podsWithEvents{podList(found), []v1.Event{}}
	for _, info := range found.Pods {
		events, err := c.listEvents(ctx, nameOf(info.Pod))
		if err != nil {
			return err
		}
		answer.Events = append(answer.Events, events...)
	}
	return WriteObject(out, o.Output, answer)
}

// fetchDescription fetches the other data that podd describe shows about a pod.
func (c *client) fetchDescription(ctx context.Context, info server.PodInfo, all server.Listing) (*description, error) {
	name := nameOf(info.Pod)
	d := &description{PodInfo: info, now: time.Now()}
	var err error
	if d.events, err = c.listEvents(ctx, name); err != nil {
		return nil, err
	}
	if d.volumes, err = c.volumes(ctx, info.Pod.UID); err != nil {
		return nil, err
	}
	for _, l := range problemLines(podFilter{names: []podName{name}}.apply(all)) {
		d.problems = append(d.problems, l.text)
	}
	return d, nil
}

func nameOf(p *v1.Pod) podName { return podName{p.Namespace, p.Name} }
