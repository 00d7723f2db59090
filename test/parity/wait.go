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
	return story.Watch{Missing: p.missing, Next: func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-p.side.looked():
		}
	}}
}

func (p *play) missing(ctx context.Context, terms []string) (string, error) {
	var missing []string
	for _, term := range terms {
		ok, found, err := p.holds(ctx, term)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if !ok {
			missing = append(missing, term+" (is "+found+")")
		}
	}
	return strings.Join(missing, ", "), nil
}

// holds says whether a term is so, and what is there.
func (p *play) holds(ctx context.Context, term string) (bool, string, error) {
	podName := p.pod("pod")
	if before, rest, ok := strings.Cut(term, "/"); ok && !strings.Contains(before, "=") {
		podName, term = p.pod(before), rest
	}
	key, want, _ := strings.Cut(term, "=")
	switch key {
	case "stopped":
		return p.stopped(ctx)
	case "trace":
		lines := p.trace()
		return slices.Contains(lines, want), fmt.Sprintf("%q", lines), nil
	case "event":
		events, err := p.side.Agent.Events(ctx, podName+"-"+nodeName)
		var reasons []string
		for _, e := range events {
			reasons = append(reasons, e.Reason)
		}
		return slices.Contains(reasons, want), fmt.Sprint(reasons), err
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
	if name, ok := strings.CutSuffix(key, ".restarts"); ok {
		var restarts int
		_, _ = fmt.Sscanf(axes[name].is, "#%d", &restarts)
		least, err := strconv.Atoi(want)
		return restarts >= least, axes[name].is, err
	}
	stands := axes[strings.ReplaceAll(key, ".", " ")]
	found := stands.is
	if want == "ended" {
		return strings.Contains(stands.same, " ended:"), found, nil
	}
	_, state, _ := strings.Cut(found, " ") // without the restarts
	return strings.HasPrefix(state, want), found, nil
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
