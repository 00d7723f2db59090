package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/internal/pod"
	"podd/server"
)

// printWithEvents prints one pod and its events.
func (o *PsOptions) printWithEvents(ctx context.Context, out, errOut io.Writer) error {
	if len(o.Pods) > 0 {
		return UsageErrorf("--events takes exactly one pod, not: %s", strings.Join(o.Pods, " "))
	}
	name, err := parsePodName(o.Events, o.Namespace)
	if err != nil {
		return err
	}
	c := newClient(o.StateDir)
	all, err := c.listPods(ctx)
	if err != nil {
		return err
	}
	l := podFilter{names: []podName{name}}.apply(all)
	e := &EventsOptions{StateDir: o.StateDir, Namespace: o.Namespace, Pod: o.Events, Output: o.Output, Watch: o.Watch}
	switch o.Output {
	case "json", "yaml":
		if o.Watch {
			break // the pod is being watched: print its events
		}
		if len(l.Pods) == 0 {
			return name.notFound(all)
		}
		events, err := c.listEvents(ctx, name)
		if err != nil {
			return err
		}
		return WriteObject(out, o.Output, podsWithEvents{podList(l), events})
	default:
		e.Output = ""
		if len(l.Pods) > 0 {
			v := view{wide: o.Output == "wide", width: widthOf(out), filtered: true}
			if err := v.writeDetails(out, l, time.Now()); err != nil {
				return err
			}
			fmt.Fprintln(out, "\nEvents:")
		}
	}
	return e.Run(ctx, out, errOut)
}

// writeDetails writes the output of kubectl describe without the specs: the rows of the table,
// each container, and the unmet conditions.
func (v view) writeDetails(w io.Writer, l server.Listing, now time.Time) error {
	if err := v.writeTable(w, l, now); err != nil {
		return err
	}
	for _, info := range l.Pods {
		p := info.Pod
		of := ""
		if len(l.Pods) > 1 {
			of = " of " + p.Namespace + "/" + p.Name
		}
		if p.Status.Reason != "" || p.Status.Message != "" {
			fmt.Fprintf(w, "\nEnded%s:\n", printable(of))
			paragraph(w, 2, oneLine(strings.Trim(p.Status.Reason+": "+p.Status.Message, ": ")), v.width)
		}
		v.writeSection(w, "Containers"+of, containerLines(info, now))
		v.writeSection(w, "Conditions that are not met"+of, conditionLines(p, now))
	}
	if len(l.Problems) > 0 {
		v.writeSection(w, countProblems(tally(l.Problems)), textOf(problemLines(l)))
	}
	return nil
}

func (v view) writeSection(w io.Writer, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", printable(heading))
	for _, l := range lines {
		paragraph(w, 2, l, v.width)
	}
}

func textOf(lines []line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.text)
	}
	return all
}

// containerLines returns the state and restarts of each container: init
// containers in their order, then regular ones, then ephemeral ones.
func containerLines(info server.PodInfo, now time.Time) []string {
	p, lines := info.Pod, []string(nil)
	add := func(kind string, all []v1.ContainerStatus) {
		for i := range all {
			kind := kind
			if kind == "init" && sidecar(p, all[i].Name) {
				kind = "sidecar"
			}
			name := strings.TrimSpace(kind + " " + all[i].Name)
			if n := int(all[i].RestartCount); n > 0 {
				name += " (" + Count(n, "restart") + ")"
			}
			lines = append(lines, oneLine(name+": "+containerLine(&all[i], kind, info.Causes[all[i].Name], now)))
		}
	}
	add("init", p.Status.InitContainerStatuses)
	add("", p.Status.ContainerStatuses)
	add("ephemeral", p.Status.EphemeralContainerStatuses)
	return lines
}

// containerLine describes a container's state and readiness, and how the previous container
// ended.
func containerLine(cs *v1.ContainerStatus, kind, cause string, now time.Time) string {
	var parts []string
	switch s := cs.State; {
	case s.Running != nil:
		text := "running"
		if !s.Running.StartedAt.IsZero() {
			text += " for " + duration.HumanDuration(now.Sub(s.Running.StartedAt.Time))
		}
		switch {
		case kind == "init" || kind == "ephemeral":
		case cs.Started != nil && !*cs.Started:
			text += ", not started yet"
		case !cs.Ready:
			text += ", not ready"
		}
		if cause != "" {
			text += ": " + cause
		}
		parts = append(parts, text)
	case s.Terminated != nil:
		unnamed := *s.Terminated
		unnamed.Reason = ""
		text, _ := describeExit(&unnamed, "", now)
		if cause != "" {
			text = cause + "; " + text
		}
		parts = append(parts, terminationReason(s.Terminated)+": "+text)
	case s.Waiting != nil:
		reason, text, _ := notRunningReason(cs, cause, now)
		parts = append(parts, strings.TrimSuffix(cmp.Or(reason, s.Waiting.Reason, "waiting")+": "+text, ": "))
	}
	if last := cs.LastTerminationState.Terminated; last != nil && (cs.State.Waiting == nil || cs.State.Waiting.Reason != pod.ReasonCrashLoopBackOff) {
		text, _ := describeExit(last, "", now)
		parts = append(parts, "previously "+text)
	}
	return strings.Join(parts, "; ")
}

// conditionLines returns the unmet conditions. It omits ContainersReady if Ready says the same.
func conditionLines(p *v1.Pod, now time.Time) []string {
	if pod.IsPhaseTerminal(p.Status.Phase) {
		return nil
	}
	good := []v1.PodConditionType{v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady}
	var lines []string
	reported := map[string]bool{}
	for _, c := range p.Status.Conditions {
		wrong := slices.Contains(good, c.Type) == (c.Status != v1.ConditionTrue)
		why := strings.Trim(c.Reason+": "+c.Message, ": ")
		if !wrong || why != "" && reported[why] {
			continue
		}
		reported[why] = true
		text := fmt.Sprintf("%s is %s", c.Type, c.Status)
		if !c.LastTransitionTime.IsZero() {
			text += " for " + duration.HumanDuration(now.Sub(c.LastTransitionTime.Time))
		}
		lines = append(lines, oneLine(strings.TrimSuffix(text+": "+why, ": ")))
	}
	return lines
}

// podsWithEvents is the output of podd ps --events for programs.
type podsWithEvents struct {
	psList
	Events []v1.Event `json:"events"`
}
