package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

// settle is how long after its last step a scenario is left alone before its
// last status is taken: more than the kubelet's look once a second.
const settle = 2 * time.Second

// Record is what one scenario came to on one side.
type Record struct {
	Scenario string `json:"scenario"`
	// Failed is the step that did not come true, and what was there instead.
	Failed string `json:"failed,omitempty"`
	// Pods are the generations of each pod, by the pod's name.
	Pods map[string][]*Series `json:"pods"`
	// Events are by pod, Trace is what the containers wrote, line by line.
	Events map[string][]Event `json:"events"`
	Trace  []string           `json:"trace"`
	Took   time.Duration      `json:"took"`
}

// fail notes an error, nil being none.
func (r *Record) fail(err error) {
	if err != nil {
		r.Failed = strings.TrimPrefix(r.Failed+"; "+err.Error(), "; ")
	}
}

// Side runs scenarios on one agent.
type Side struct {
	Name  string
	Agent Agent
	Node  *testnode.Node
	// Out holds one directory a scenario; Tools is what containers have as
	// /tools; Registry is where the harness serves images.
	Out, Tools, Registry string

	mu      sync.Mutex
	watched map[string]*watched // by the pod's name without the node's
	polled  chan struct{}       // closed and replaced after every look
}

// Poll looks at all pods until ctx ends.
func (s *Side) Poll(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		if pods, err := s.Agent.Pods(ctx); err == nil {
			s.see(pods, time.Now())
		}
		if n%20 == 0 { // before an agent forgets them; errors are the script's to find
			for _, name := range s.names() {
				_, _ = s.Agent.Events(ctx, name+"-"+nodeName)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Side) see(pods []v1.Pod, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pods {
		if w := s.watched[strings.TrimSuffix(pods[i].Name, "-"+nodeName)]; w != nil {
			w.see(&pods[i], at)
		}
	}
	close(s.polled)
	s.polled = make(chan struct{})
}

// names are the pods under way.
func (s *Side) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.watched))
}

func (s *Side) looked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polled
}

// Run plays one scenario and cleans up after it.
func (s *Side) Run(ctx context.Context, scenario *Scenario) *Record {
	begin := time.Now()
	p := &play{
		side: s, scenario: scenario, out: filepath.Join(s.Out, scenario.As), inPlace: map[string]bool{},
		names: map[string]string{}, pods: map[string]*watched{},
	}
	err := p.run(ctx)
	record := &Record{Scenario: scenario.Name, Pods: map[string][]*Series{}, Events: map[string][]Event{}}
	record.fail(err)
	for name, w := range p.pods {
		w.take()
		events, err := s.Agent.Events(ctx, name+"-"+nodeName)
		record.fail(err)
		name = strings.Replace(name, scenario.As, scenario.Name, 1)
		record.Pods[name], record.Events[name] = w.series, events
	}
	record.Trace = p.trace()
	// Of what comes now only a failure counts: a scenario that is about its pods'
	// end removes them itself.
	record.fail(p.cleanUp(ctx))
	record.Took = time.Since(begin)
	record.normalise(normaliser(s, scenario))
	s.mu.Lock()
	for name := range p.pods {
		delete(s.watched, name)
	}
	s.mu.Unlock()
	return record
}

// play is one scenario under way.
type play struct {
	side     *Side
	scenario *Scenario
	out      string
	inPlace  map[string]bool     // files in the manifest directory
	names    map[string]string   // manifest → pod's name
	pods     map[string]*watched // by the pod's name
}

// pod is the name of the pod of a manifest that a step speaks of without its
// ending.
func (p *play) pod(manifest string) string { return p.names[manifest+".yaml"] }

func (p *play) run(ctx context.Context) error {
	if err := os.MkdirAll(p.out, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(p.out, 0o777); err != nil { // whoever a container is
		return err
	}
	for _, file := range p.scenario.initial() {
		if err := p.put(file, file); err != nil {
			return err
		}
	}
	for _, step := range p.scenario.Steps {
		if step.Verb == "end" {
			return nil
		}
		if err := p.step(ctx, step); err != nil {
			return fmt.Errorf("line %d, %s: %w", step.Line, step, err)
		}
	}
	return p.settle(ctx)
}

// settle gives the agent the time to show all that followed from the last step:
// of a pod that has ended also that its sandbox is gone, which the kubelet tells
// some seconds later.
func (p *play) settle(ctx context.Context) error {
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && p.sandboxShown(); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.side.looked():
		}
	}
	return nil
}

// sandboxShown says whether a pod that has ended is shown with its sandbox.
func (p *play) sandboxShown() bool {
	for _, w := range p.pods {
		pod := w.last()
		if pod == nil || pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReadyToStartContainers && c.Status == v1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *play) step(ctx context.Context, step Step) error {
	switch step.Verb {
	case "apply":
		return p.put(step.Args[0], step.Args[0])
	case "replace":
		return p.put(step.Args[1], step.Args[0])
	case "remove":
		return p.remove(step.Args)
	case "sleep":
		return sleep(ctx, step.Within)
	case "touch":
		return os.WriteFile(filepath.Join(p.out, step.Args[0]), nil, 0o666)
	case "rm":
		return os.Remove(filepath.Join(p.out, step.Args[0]))
	case "wait":
		return p.wait(ctx, step)
	default:
		return p.fromOutside(ctx, step)
	}
}

// put brings a manifest into the directory in one step, in the place of another
// or its own.
func (p *play) put(file, as string) error {
	number := p.scenario.Number
	text, err := p.scenario.manifest(file, as, map[string]string{
		"OUT": p.out, "TOOLS": p.side.Tools, "REGISTRY": p.side.Registry, "PORT": port(p.side.Name, number),
	})
	if err != nil {
		return err
	}
	name, err := podName(text)
	if err != nil {
		return err
	}
	p.names[as] = name
	w := p.pods[name]
	if w == nil {
		w = &watched{}
		p.pods[name] = w
		p.side.mu.Lock()
		p.side.watched[name] = w
		p.side.mu.Unlock()
	}
	target := p.scenario.As + "." + as
	temporary := filepath.Join(p.out, ".manifest")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	p.inPlace[target] = true
	w.put(text)
	return os.Rename(temporary, filepath.Join(p.side.Agent.Manifests(), target))
}

func (p *play) remove(files []string) error {
	if len(files) == 0 {
		for target := range p.inPlace {
			files = append(files, strings.TrimPrefix(target, p.scenario.As+"."))
		}
	}
	var errs []error
	for _, file := range files {
		target := p.scenario.As + "." + file
		if !p.inPlace[target] {
			return fmt.Errorf("%s is not in place", file)
		}
		delete(p.inPlace, target)
		p.pods[p.names[file]].take()
		errs = append(errs, os.Remove(filepath.Join(p.side.Agent.Manifests(), target)))
	}
	return errors.Join(errs...)
}

// cleanUp removes the manifests and waits for the containers to be gone.
func (p *play) cleanUp(ctx context.Context) error {
	if err := p.remove(nil); err != nil {
		return err
	}
	return p.wait(ctx, Step{Args: []string{"stopped"}, Within: 45 * time.Second})
}

func (p *play) trace() []string {
	text, _ := os.ReadFile(filepath.Join(p.out, "trace"))
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// wait returns when all terms hold at one look.
func (p *play) wait(ctx context.Context, step Step) error {
	ctx, cancel := context.WithTimeout(ctx, step.Within)
	defer cancel()
	for {
		var missing []string
		for _, term := range step.Args {
			ok, found, err := p.holds(ctx, term)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if !ok {
				missing = append(missing, term+" (is "+found+")")
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s", step.Within, strings.Join(missing, ", "))
		case <-p.side.looked():
		}
	}
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
	found := axes[strings.ReplaceAll(key, ".", " ")].is
	if strings.HasPrefix(found, "#") { // a container: its state counts
		_, state, _ := strings.Cut(found, " ")
		return strings.HasPrefix(state, want), found, nil
	}
	return strings.HasPrefix(found, want), found, nil
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

// fromOutside does through CRI what an administrator might do with crictl.
func (p *play) fromOutside(ctx context.Context, step Step) error {
	if step.Verb == "kill-sandbox" {
		return p.killSandbox(ctx)
	}
	podName, container := p.pod("pod"), step.Args[0]
	if before, rest, ok := strings.Cut(container, "/"); ok {
		podName, container = p.pod(before), rest
	}
	containers, err := p.side.Node.CRI.Containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		name, _ := p.ours(c.Labels)
		if name != podName || c.Metadata.Name != container || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if step.Verb == "exec" {
			_, err := p.side.Node.CRI.Exec(ctx, c.Id, step.Args[1:]...)
			return err
		}
		_, err := p.side.Node.CRI.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id})
		return err
	}
	return fmt.Errorf("no running container %s of %s", container, podName)
}

func (p *play) killSandbox(ctx context.Context) error {
	boxes, err := p.side.Node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, box := range boxes {
		if _, ok := p.ours(box.Labels); ok && box.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			_, err := p.side.Node.CRI.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.Id})
			return err
		}
	}
	return fmt.Errorf("no ready sandbox")
}
