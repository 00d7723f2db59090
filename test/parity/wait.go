package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/story"
)

// waits is what a wait sees of the scenario's pods, at each look of the poller.
func (p *play) waits() story.Watch {
	return story.Watch{Unmet: p.missing, AwaitChange: func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-p.side.looked():
		}
	}}
}

func (p *play) missing(ctx context.Context, words []string) (string, error) {
	facts, err := story.ParseFacts(words)
	if err != nil {
		return "", err
	}
	var missing []string
	for _, f := range facts {
		ok, found, err := p.holds(ctx, f)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if !ok {
			missing = append(missing, f.Mismatch(found))
		}
	}
	return strings.Join(missing, ", "), nil
}

// holds says whether a fact is so, and what is there.
func (p *play) holds(ctx context.Context, f story.Fact) (bool, string, error) {
	if f.Subject == "nothing" && f.Key == "running" {
		return p.stopped(ctx)
	}
	called, container, _ := strings.Cut(f.Subject, "/")
	podName := p.pod(called)
	if f.Key == "trace" {
		lines := p.trace()
		return slices.Contains(lines, f.Want), fmt.Sprintf("%q", lines), nil
	}
	if reason, ok := strings.CutPrefix(f.Key, "event:"); ok {
		return p.told(ctx, f, podName, reason)
	}
	w := p.pods[podName]
	if w == nil {
		return false, "", fmt.Errorf("no pod %s in this scenario", podName)
	}
	seen := w.last()
	if seen == nil {
		return false, "not listed", nil
	}
	axes := axesOf(seen)
	var found string
	var err error
	condition, ok := strings.CutPrefix(f.Key, "cond:")
	switch {
	case container != "":
		found, err = ofContainer(axes, container, f.Key)
	case ok:
		found = axes[condition].state()
	case f.Key == "phase":
		found = axes["phase"].state()
	default:
		err = fmt.Errorf("nothing is known of a pod called %s", f.Key)
	}
	if err == nil && f.Holds(found) && container != "" && (f.Key == "ready" && found == "true" || f.Key == "state" && found == "running") {
		if listens, err := p.listens(ctx, podName, container); err != nil || !listens {
			return false, "before its trap", err
		}
	}
	return f.Holds(found), found, err
}

// told says how often an event of a pod was told.
func (p *play) told(ctx context.Context, f story.Fact, podName, reason string) (bool, string, error) {
	events, err := p.side.Agent.Events(ctx, podName+"-"+nodeName)
	n := 0
	for _, e := range events {
		if e.Reason == reason {
			n += max(1, e.Count)
		}
	}
	return f.Holds(strconv.Itoa(n)), strconv.Itoa(n), err
}

// ofContainer answers a question about a container; empty while it is not shown.
func ofContainer(axes map[string]standing, container, key string) (string, error) {
	at, ok := axes[container]
	switch key {
	case "state":
		return at.state(), nil
	case "ended": // or in back-off after it
		return strconv.FormatBool(strings.Contains(at.same, " ended:")), nil
	case "restarts":
		if !ok {
			return "", nil
		}
		return strings.TrimPrefix(lives(Span{State: at.is}), "#"), nil
	case "ready", "started":
		return axes[container+" "+key].state(), nil
	}
	return "", fmt.Errorf("nothing is known of a container called %s", key)
}

// state is the state without the restarts before it.
func (s standing) state() string {
	_, state, _ := strings.Cut(s.is, " ")
	return state
}

// ours finds the sandboxes and containers of the scenario's pods.
func (p *play) ours(labels map[string]string) (podName string, ok bool) {
	name := strings.TrimSuffix(labels["io.kubernetes.pod.name"], "-"+nodeName)
	_, ok = p.pods[name]
	return name, ok
}

func (p *play) stopped(ctx context.Context) (bool, string, error) {
	containers, err := p.side.Node.CRI.Containers(ctx)
	if err != nil {
		return false, "", err
	}
	for _, c := range containers {
		if name, ok := p.ours(c.Labels); ok && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return false, "container " + c.Metadata.Name + " of " + name + " runs", nil
		}
	}
	boxes, err := p.side.Node.CRI.Sandboxes(ctx)
	if err != nil {
		return false, "", err
	}
	for _, box := range boxes {
		if name, ok := p.ours(box.Labels); ok && box.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return false, "the sandbox of " + name + " is ready", nil
		}
	}
	return true, "", nil
}
