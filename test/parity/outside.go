package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// alone are the steps that every pod of a node feels: a scenario that has one is
// played with no other beside it.
var alone = []string{"stop-agent", "start-agent", "restart-agent", "kill-agent", "restart-runtime", "url-answers"}

// fromOutside does what an administrator does to a node, and with crictl behind
// the agent's back.
func (p *play) fromOutside(ctx context.Context, step Step) error {
	switch step.Verb {
	case "stop-agent":
		return p.down(ctx, p.side.Agent.Stop)
	case "start-agent":
		return p.up(ctx)
	case "restart-agent":
		return errors.Join(p.down(ctx, p.side.Agent.Stop), p.up(ctx))
	case "kill-agent":
		return p.down(ctx, p.side.Agent.Kill)
	case "restart-runtime":
		return errors.Join(p.side.Node.Containerd.Signal(unix.SIGTERM), p.side.Node.Containerd.Start(ctx))
	case "url-answers":
		code, err := strconv.Atoi(step.Args[0])
		p.side.URL.answer(code)
		return err
	case "kill-sandbox", "stop-sandbox", "rm-sandbox":
		return p.toSandbox(ctx, step.Verb)
	default:
		return p.toContainer(ctx, step)
	}
}

// down ends the agent by stop. What it told is asked for before: podd has its
// events in memory.
func (p *play) down(ctx context.Context, stop func() error) error {
	for name := range p.pods {
		if _, err := p.side.Agent.Events(ctx, name+"-"+nodeName); err != nil {
			return err
		}
	}
	return stop()
}

// up starts the agent if it does not run.
func (p *play) up(ctx context.Context) error {
	if p.side.Agent.Running() {
		return nil
	}
	for _, w := range p.pods {
		w.start(time.Now())
	}
	return p.side.Agent.Start(ctx)
}

// toContainer executes in a running container, stops it, or removes it in
// whatever state it is.
func (p *play) toContainer(ctx context.Context, step Step) error {
	called, container, _ := strings.Cut(step.Args[0], "/")
	podName := p.pod(called)
	containers, err := p.side.Node.CRI.Containers(ctx)
	if err != nil {
		return err
	}
	runtime, found := p.side.Node.CRI.Runtime, false
	for _, c := range containers {
		name, _ := p.ours(c.Labels)
		if name != podName || c.Metadata.Name != container {
			continue
		}
		running := c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case step.Verb == "rm-container":
			found = true
			_, err = runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.Id})
		case step.Verb == "exec" && running:
			found = true
			_, err = p.side.Node.CRI.Exec(ctx, c.Id, step.Args[1:]...)
		case step.Verb == "kill" && running:
			found = true
			_, err = runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id})
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no container %s of %s to do it to", container, podName)
	}
	return nil
}

// toSandbox kills the first process of each sandbox, stops or removes it.
func (p *play) toSandbox(ctx context.Context, verb string) error {
	boxes, err := p.side.Node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	runtime, found := p.side.Node.CRI.Runtime, false
	for _, box := range boxes {
		if _, ok := p.ours(box.Labels); !ok || verb != "rm-sandbox" && box.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		found = true
		switch verb {
		case "kill-sandbox":
			err = p.killPause(ctx, box.Id)
		case "stop-sandbox":
			_, err = runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.Id})
		default:
			_, err = runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.Id})
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no sandbox to do it to")
	}
	return nil
}

// killPause kills the process that holds a sandbox's namespaces. Its containers
// run on: what the agent makes of it does not hang on who is quicker, as it does
// when a runtime stops one container after the other.
func (p *play) killPause(ctx context.Context, id string) error {
	status, err := p.side.Node.CRI.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return err
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil || info.Pid <= 1 {
		return fmt.Errorf("the runtime does not tell the process of sandbox %s: %v", id, err)
	}
	return unix.Kill(info.Pid, unix.SIGKILL)
}
