package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
)

// RetryOptions are the options of podd retry.
type RetryOptions struct {
	StateDir string
	// Pods are names as given on the command line. All selects every pod that waits for
	// anything; if Namespace is set, only pods in that namespace.
	Pods      []string
	Namespace string
	All       bool
}

// Run makes the daemon end the pods' back-offs, and prints the pods that it retries.
func (o *RetryOptions) Run(ctx context.Context, out io.Writer) error {
	c := newClient(o.StateDir)
	query := url.Values{"all": {""}, "namespace": {o.Namespace}}
	if !o.All {
		var err error
		if query, err = o.find(ctx, c); err != nil {
			return err
		}
	}
	answer, err := c.retry(ctx, query)
	if err != nil {
		return err
	}
	for _, name := range answer.Pods {
		fmt.Fprintf(out, "retrying %s\n", printable(name))
	}
	switch {
	case len(answer.Pods) > 0:
	case o.All:
		fmt.Fprintln(out, "No pod is waiting.")
	default:
		return errors.New("the pod has just been removed")
	}
	return nil
}

// find returns the full names of the selected pods, as a query.
func (o *RetryOptions) find(ctx context.Context, c *client) (url.Values, error) {
	names, err := parsePodNames(o.Pods, o.Namespace)
	if err != nil {
		return nil, err
	}
	l, err := c.listPods(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for _, name := range names {
		found := false
		for _, info := range l.Pods {
			if name.matches(info.Pod) {
				found = true
				query.Add("pod", info.Pod.Namespace+"/"+info.Pod.Name)
			}
		}
		if !found {
			return nil, name.notFound(l)
		}
	}
	return query, nil
}
