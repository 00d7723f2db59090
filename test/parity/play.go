package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/story"
)

// settle is how long after its last step a scenario is left alone before its
// last status is taken: more than the kubelet's look once a second.
const settle = 2 * time.Second

// play is one scenario under way.
type play struct {
	side     *Side
	scenario *Scenario
	out      string
	inPlace  map[string]string   // the documents in place: text by file
	served   map[string]bool     // files that the URL answers with
	names    map[string][]string // manifest → its pods' names
	pods     map[string]*watched // by the pod's name
}

// pod is the name of the pod that a step speaks of: by its manifest without the
// ending, or by what comes after the scenario's name in its own.
func (p *play) pod(called string) string {
	if names := p.names[called+".yaml"]; len(names) > 0 {
		return names[0]
	}
	return p.scenario.Name + "-" + called
}

func (p *play) run(ctx context.Context) error {
	if err := os.MkdirAll(p.out, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(p.out, 0o777); err != nil { // whoever a container is
		return err
	}
	for _, file := range p.scenario.initial() {
		if err := p.put(ctx, file, file); err != nil {
			return err
		}
	}
	if err := p.scenario.play(ctx, p.step); err != nil || p.scenario.cut() {
		return err
	}
	return p.settle(ctx)
}

// settle gives the agent the time to show all that followed from the last step:
// of a pod that has ended also that its sandbox is gone, which the kubelet tells
// some seconds later.
func (p *play) settle(ctx context.Context) error {
	if err := story.Sleep.Do(ctx, []string{settle.String()}); err != nil {
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

func (p *play) step(ctx context.Context, step Step) error {
	args := step.Args
	switch step.Verb {
	case "apply":
		return p.put(ctx, args[0], args[0])
	case "replace":
		return p.put(ctx, args[1], args[0])
	case "write":
		return p.write(ctx, args[0], args[len(args)-1])
	case "rename":
		return p.rename(ctx, args[0], args[1])
	case "remove":
		return p.remove(ctx, args)
	case "serve":
		for _, file := range args {
			if err := p.serve(file, file); err != nil {
				return err
			}
		}
		return nil
	case "serve-instead":
		return p.serve(args[1], args[0])
	case "unserve":
		return p.unserve(args)
	case "sleep":
		return story.Sleep.Do(ctx, args)
	case "touch":
		return os.WriteFile(filepath.Join(p.out, args[0]), nil, 0o666)
	case "rm":
		return os.Remove(filepath.Join(p.out, args[0]))
	case "wait":
		return p.waits().Command().Do(ctx, args)
	case "needs": // said before anything is played
		return nil
	case "stop":
		return story.ErrStop
	default:
		return p.fromOutside(ctx, step)
	}
}

// text is a manifest as it is put into place as another or itself.
func (p *play) text(file, as string) (string, error) {
	_, registryPort, _ := net.SplitHostPort(p.side.Registry)
	return p.scenario.manifest(file, as, map[string]string{
		"REGISTRYPORT": registryPort,
		"NAME":         p.scenario.Name,
		"OUT":          p.out, "TOOLS": p.side.Tools, "REGISTRY": p.side.Registry,
		"PORT": port(p.side.Name, p.scenario.Number, 0), "PORT2": port(p.side.Name, p.scenario.Number, 1),
	})
}

// put brings a manifest into the directory in one step, in the place of another
// or its own, and begins to watch its pods.
func (p *play) put(ctx context.Context, file, as string) error {
	text, err := p.text(file, as)
	if err != nil {
		return err
	}
	if err := p.watch(text, as, text); err != nil {
		return err
	}
	return p.place(ctx, text, as)
}

// watch begins a generation of each pod that a manifest names. What tells a
// generation from another is the key.
func (p *play) watch(text, as, key string) error {
	names, err := p.scenario.podNames(as, text)
	if err != nil {
		return err
	}
	for _, before := range p.names[as] {
		if !slices.Contains(names, before) {
			p.pods[before].take()
		}
	}
	p.names[as] = names
	for _, name := range names {
		w := p.pods[name]
		if w == nil {
			w = &watched{sane: p.side.sane}
			p.pods[name] = w
			p.side.mu.Lock()
			p.side.watched[name] = w
			p.side.mu.Unlock()
		}
		w.put(key)
	}
	return nil
}

// write puts a text into the directory of which nothing new is expected: what was
// seen of the pods before goes on.
func (p *play) write(ctx context.Context, file, as string) error {
	text, err := p.text(file, as)
	if err != nil {
		return err
	}
	return p.place(ctx, text, as)
}

func (p *play) place(ctx context.Context, text, as string) error {
	p.inPlace[as] = text
	return p.side.Agent.Put(ctx, p.file(as), text)
}

// file is a manifest's name in the run; by its ending podd tells manifests from others.
func (p *play) file(file string) string {
	if name, ok := strings.CutSuffix(file, ".raw"); ok {
		file = name + ".yaml"
	}
	return p.scenario.Name + "." + file
}

// rename gives a manifest another file name, and with it its pods another UID.
func (p *play) rename(ctx context.Context, file, to string) error {
	text, ok := p.inPlace[file]
	if !ok {
		return fmt.Errorf("%s is not in place", file)
	}
	if err := p.watch(text, to, to+"\n"+text); err != nil {
		return err
	}
	delete(p.inPlace, file)
	p.inPlace[to] = text
	return p.side.Agent.Rename(ctx, p.file(file), p.file(to))
}

func (p *play) remove(ctx context.Context, which []string) error {
	if len(which) == 0 {
		which = podsFirst(p.inPlace)
	}
	var errs []error
	for _, file := range which {
		if _, ok := p.inPlace[file]; !ok {
			return fmt.Errorf("%s is not in place", file)
		}
		delete(p.inPlace, file)
		p.take(file)
		errs = append(errs, p.side.Agent.Remove(ctx, p.file(file)))
	}
	return errors.Join(errs...)
}

// take ends what is watched of a manifest's pods.
func (p *play) take(file string) {
	for _, name := range p.names[file] {
		p.pods[name].take()
	}
}

// serve adds a manifest to what the URL answers with, in the place of another or
// its own.
func (p *play) serve(file, as string) error {
	text, err := p.text(file, as)
	if err != nil {
		return err
	}
	if err := p.watch(text, as, text); err != nil {
		return err
	}
	p.served[as] = true
	return p.side.URL.set(p.scenario.Name+"."+as, text)
}

func (p *play) unserve(files []string) error {
	for _, file := range files {
		if !p.served[file] {
			return fmt.Errorf("%s is not served", file)
		}
		delete(p.served, file)
		p.take(file)
		p.side.URL.unset(p.scenario.Name + "." + file)
	}
	return nil
}

// cleanUp removes the manifests and waits for the containers to be gone.
func (p *play) cleanUp(ctx context.Context) error {
	p.side.URL.answer(http.StatusOK)
	for file := range p.served {
		p.side.URL.unset(p.scenario.Name + "." + file)
	}
	if err := errors.Join(p.up(ctx), p.remove(ctx, nil)); err != nil {
		return err
	}
	return p.waits().Wait(ctx, 45*time.Second, []string{"nothing", "running"})
}

func (p *play) trace() []string {
	text, _ := os.ReadFile(filepath.Join(p.out, "trace"))
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
