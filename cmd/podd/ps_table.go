package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/internal/pod"
	"podd/server"
)

// view is how a listing is shown to a person.
type view struct {
	wide bool
	// width of the terminal, at which sentences are wrapped; 0 for never.
	width int
	// filtered: not all pods were asked for.
	filtered bool
}

const (
	// mostReasons and mostReason (in characters) bound what is said below the
	// table without -o wide.
	mostReasons = 10
	mostReason  = 400
)

// row is a line of the table; key leaves out what changes by itself.
type row struct {
	cells []string
	key   string
}

// line is a sentence below the table; key leaves out what changes by itself.
type line struct{ text, key string }

func (v view) heading() []string {
	h := []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}
	if v.wide {
		h = append(h, "NODE", "IMAGES", "SOURCE", "UID")
	}
	return h
}

func (v view) pods(l server.Listing, now time.Time) []row {
	kept := map[string]bool{}
	for _, p := range l.Problems {
		if p.KeptRunning && p.Pod != "" {
			kept[p.Pod] = true
		}
	}
	var rows []row
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
		cells := []string{p.Namespace, p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts,
			age(p, now), cmp.Or(p.Status.PodIP, "<none>")}
		key := []string{string(p.UID), cells[2], s.status, strconv.Itoa(s.restarts), cells[6]}
		if v.wide {
			var images []string
			for _, c := range p.Spec.Containers {
				images = append(images, c.Image)
			}
			cells = append(cells, cmp.Or(p.Spec.NodeName, "<none>"), strings.Join(images, ","),
				cmp.Or(info.Origin, "<none>"), string(p.UID))
		}
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		rows = append(rows, row{cells, strings.Join(key, " ")})
	}
	return rows
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

// write writes the table, why containers do not run, and the problems.
func (v view) write(w io.Writer, l server.Listing, now time.Time) error {
	switch {
	case len(l.Pods) > 0:
		rows := [][]string{v.heading()}
		for _, r := range v.pods(l, now) {
			rows = append(rows, r.cells)
		}
		if err := new(table).write(w, rows); err != nil {
			return err
		}
	case v.filtered:
		fmt.Fprintln(w, "No such pods.")
	default:
		fmt.Fprintln(w, "No pods. Put a manifest into the manifest directory (staticPodPath) and it runs.")
	}
	if reasons := v.reasons(l, now); len(reasons) > 0 {
		fmt.Fprintln(w, "\nNot running:")
		v.section(w, reasons)
	}
	if reasons := unready(l); len(reasons) > 0 {
		fmt.Fprintln(w, "\nNot ready:")
		v.section(w, reasons)
	}
	if problems := problemLines(l); len(problems) > 0 {
		fmt.Fprintf(w, "\n%s:\n", countProblems(tally(l.Problems)))
		for _, p := range problems {
			paragraph(w, 2, p.text, v.width)
		}
	}
	return nil
}

func (v view) section(w io.Writer, lines []line) {
	shown := lines
	if !v.wide && len(lines) > mostReasons {
		shown = lines[:mostReasons]
	}
	for _, l := range shown {
		if !v.wide {
			l.text = shorten(l.text, mostReason)
		}
		paragraph(w, 2, l.text, v.width)
	}
	if more := len(lines) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %d more: podd ps -o wide\n", more)
	}
}

// reasons say of each container that ought to run why it does not, and of each
// pod that ended for a reason of its own, which.
func (v view) reasons(l server.Listing, now time.Time) []line {
	var lines []line
	for _, info := range l.Pods {
		p := info.Pod
		if p.DeletionTimestamp != nil {
			continue
		}
		say := func(container, reason, text, key string) {
			if text != "" {
				reason = strings.TrimPrefix(reason+": ", ": ") + text
			}
			where := p.Namespace + "/" + p.Name + ": "
			if container != "" {
				where += container + ": "
			}
			lines = append(lines, line{oneLine(where + reason), where + key})
		}
		if p.Status.Reason != "" || p.Status.Message != "" {
			say("", p.Status.Reason, p.Status.Message, p.Status.Reason+p.Status.Message)
		}
		for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if p.Status.Reason != "" && neverRan(&cs) {
				continue // the pod's reason says why, and the exit code of it is made up
			}
			if reason, text, key := why(&cs, info.Causes[cs.Name], now); reason != "" {
				say(cs.Name, reason, text, key)
			}
		}
	}
	return lines
}

// unready says of each container that runs and is not ready what its probe says.
func unready(l server.Listing) []line {
	var lines []line
	for _, info := range l.Pods {
		p := info.Pod
		if p.DeletionTimestamp != nil {
			continue
		}
		for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if cause := info.Causes[cs.Name]; cause != "" && cs.State.Running != nil {
				text := oneLine(p.Namespace + "/" + p.Name + ": " + cs.Name + ": " + cause)
				lines = append(lines, line{text, text})
			}
		}
	}
	return lines
}

// neverRan says that a container of a pod that ended was never made: the API has
// an exit code for it all the same.
func neverRan(cs *v1.ContainerStatus) bool {
	t := cs.State.Terminated
	return t != nil && t.Reason == "ContainerStatusUnknown" && cs.ContainerID == "" && t.ContainerID == "" && t.StartedAt.IsZero()
}

// why a container does not run; no reason for one that does, that is done, or
// that is being made. The cause is that of events.Causes.
func why(cs *v1.ContainerStatus, cause string, now time.Time) (reason, text, key string) {
	if cause != "" {
		cause += "; "
	}
	switch waiting, ended := cs.State.Waiting, cs.State.Terminated; {
	case ended != nil && (ended.ExitCode != 0 || ended.Signal != 0):
		unnamed := *ended
		unnamed.Reason = "" // the line has it already
		text, key = exited(&unnamed, "", now)
		return ending(ended), cause + text, ending(ended) + cause + key
	case waiting == nil || waiting.Message == "" && (waiting.Reason == "" || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing"):
		return "", "", ""
	case cs.LastTerminationState.Terminated != nil && waiting.Reason == "CrashLoopBackOff":
		// The message names container and pod, which begin the line.
		delay, _, _ := strings.Cut(waiting.Message, " restarting failed container")
		text, key = exited(cs.LastTerminationState.Terminated, delay, now)
		return waiting.Reason, cause + text, cause + key
	default:
		return waiting.Reason, waiting.Message, waiting.Reason + waiting.Message
	}
}

// exited is how and when a container ended, what follows (if said), and its last
// words.
func exited(t *v1.ContainerStateTerminated, then string, now time.Time) (text, key string) {
	text = fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("killed by signal %d", t.Signal)
	}
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	key = text + then + t.Message
	if !t.FinishedAt.IsZero() {
		text += " " + duration.HumanDuration(now.Sub(t.FinishedAt.Time)) + " ago"
	}
	if then != "" {
		text += "; " + then
	}
	if last := strings.TrimSpace(t.Message); last != "" {
		text += ": " + last
	}
	return text, key
}

func problemLines(l server.Listing) []line {
	var lines []line
	for _, p := range l.Problems {
		text := oneLine(describeProblem(p))
		lines = append(lines, line{text, text})
	}
	return lines
}

// describeProblem is the problem and what became of its pod.
func describeProblem(p pod.Problem) string {
	text := p.String()
	switch {
	case p.KeptRunning && p.Pod != "":
		text += "; the last good version of " + p.Pod + " keeps running"
	case p.KeptRunning:
		text += "; the last good version keeps running"
	}
	return text
}
