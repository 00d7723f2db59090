package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"podd/internal/pod"
	"podd/server"
)

// RestartOptions are the options of podd restart.
type RestartOptions struct {
	StateDir string
	// Pods are POD or POD/CONTAINER, as given on the command line.
	Pods      []string
	Namespace string
}

// Run makes the daemon restart the pods, or containers of them, and prints which. It restarts none
// if one of the names is wrong.
func (o *RestartOptions) Run(ctx context.Context, out io.Writer) error {
	c := newClient(o.StateDir)
	l, err := c.listPods(ctx)
	if err != nil {
		return err
	}
	var all []restartTarget
	for _, arg := range o.Pods {
		found, err := o.find(l, arg)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	for _, t := range all {
		if err := c.restart(ctx, t.pod, t.container); err != nil {
			return err
		}
		what := printable(t.pod)
		if t.container != "" {
			what = "container " + printable(t.container) + " of " + what
		}
		fmt.Fprintf(out, "restarting %s\n", what)
	}
	return nil
}

type restartTarget struct{ pod, container string }

// find returns what an argument names. A slash comes before a pod's name, as everywhere, or, if there
// is no such pod, before the name of a container.
func (o *RestartOptions) find(l server.Listing, arg string) ([]restartTarget, error) {
	found, wrong := o.pods(l, arg, "")
	i := strings.LastIndex(arg, "/")
	if len(found) > 0 || i < 0 {
		return found, wrong
	}
	if found, err := o.pods(l, arg[:i], arg[i+1:]); err == nil || len(found) > 0 {
		return found, err
	}
	return nil, wrong
}

// pods returns the pods of a name. An error with pods says why they cannot be restarted.
func (o *RestartOptions) pods(l server.Listing, arg, container string) (found []restartTarget, err error) {
	name, err := parsePodName(arg, o.Namespace)
	if err != nil {
		return nil, err
	}
	for _, info := range l.Pods {
		if name.matches(info.Pod) {
			full := info.Pod.Namespace + "/" + info.Pod.Name
			found = append(found, restartTarget{full, container})
			if pod.IsPhaseTerminal(info.Pod.Status.Phase) {
				return found, fmt.Errorf("pod %s has run to its end: podd retry runs it once more", printable(full))
			}
			if spec, _ := pod.ContainerSpec(&info.Pod.Spec, container); container != "" && spec == nil {
				return found, fmt.Errorf("pod %s has no container %s", name, printable(container))
			}
		}
	}
	if len(found) == 0 {
		return nil, name.notFound(l)
	}
	return found, nil
}
