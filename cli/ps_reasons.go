package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/internal/pod"
	"podd/server"
)

// line is a sentence below the table. key leaves out what changes with time.
type line struct{ text, key string }

// notRunningLines returns why containers that should run do not, and why pods ended that have a
// reason of their own.
func (v view) notRunningLines(l server.Listing, now time.Time) []line {
	var lines []line
	for _, info := range l.Pods {
		p := info.Pod
		if p.DeletionTimestamp != nil {
			continue
		}
		add := func(container, reason, text, key string) {
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
			add("", p.Status.Reason, p.Status.Message, p.Status.Reason+p.Status.Message)
		}
		for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if p.Status.Reason != "" && neverRan(&cs) {
				continue // the pod's reason is enough, and the exit code is synthetic
			}
			if reason, text, key := notRunningReason(&cs, info.Causes[cs.Name], now); reason != "" {
				add(cs.Name, reason, text+missingObjectHint(p.Namespace, text), key)
			}
		}
	}
	return lines
}

// notReadyLines returns the probe's message for each container that runs and is not ready.
func notReadyLines(l server.Listing) []line {
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

var missingObject = regexp.MustCompile(`\b(configmap|secret) "([^"]+)" not found$`)

// missingObjectHint returns advice for a container that lacks a ConfigMap or Secret.
func missingObjectHint(namespace, message string) string {
	found := missingObject.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	kind := map[string]string{"configmap": pod.KindConfigMap, "secret": pod.KindSecret}[found[1]]
	return fmt.Sprintf(" (put a %s %s of namespace %s beside the manifests: the container starts when it is there)", kind, found[2], namespace)
}

// neverRan reports whether a container of an ended pod was never created. The API has an exit
// code even for such a container.
func neverRan(cs *v1.ContainerStatus) bool {
	t := cs.State.Terminated
	return t != nil && t.Reason == pod.ReasonContainerStatusUnknown && cs.ContainerID == "" && t.ContainerID == "" && t.StartedAt.IsZero()
}

// notRunningReason returns the reason why a container does not run. The reason is empty if the
// container runs, has completed, or is being created. cause comes from events.Causes.
func notRunningReason(cs *v1.ContainerStatus, cause string, now time.Time) (reason, text, key string) {
	if cause != "" {
		cause += "; "
	}
	switch waiting, ended := cs.State.Waiting, cs.State.Terminated; {
	case ended != nil && (ended.ExitCode != 0 || ended.Signal != 0 || ended.Reason == pod.ReasonOOMKilled):
		unnamed := *ended
		unnamed.Reason = "" // the line already names it
		text, key = describeExit(&unnamed, "", now)
		return terminationReason(ended), cause + text, terminationReason(ended) + cause + key
	case waiting == nil || waiting.Message == "" && (waiting.Reason == "" || waiting.Reason == pod.ReasonContainerCreating || waiting.Reason == pod.ReasonPodInitializing):
		return "", "", ""
	case cs.LastTerminationState.Terminated != nil && waiting.Reason == pod.ReasonCrashLoopBackOff:
		// The message names the container and the pod, but the line already begins with them.
		delay, _, _ := strings.Cut(waiting.Message, " restarting failed container")
		text, key = describeExit(cs.LastTerminationState.Terminated, delay, now)
		return waiting.Reason, cause + text, cause + key
	default:
		return waiting.Reason, waiting.Message, waiting.Reason + waiting.Message
	}
}

// describeExit describes how and when a container ended, then (if not empty), and its
// termination message.
func describeExit(t *v1.ContainerStateTerminated, then string, now time.Time) (text, key string) {
	text = fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("killed by signal %d", t.Signal)
	}
	if t.Reason != "" && t.Reason != pod.ReasonExitError {
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

// describeProblem returns the problem and its effect on its pod or object.
func describeProblem(p pod.Problem) string {
	text := p.String()
	switch {
	case p.LastGoodInUse && p.Pod != "":
		text += "; the last good version of " + p.Pod + " keeps running"
	case p.LastGoodInUse && p.Object != "":
		text += "; the last good version of the " + p.Object + " stays in use"
	case p.LastGoodInUse:
		text += "; the last good version keeps running"
	}
	return text
}
