package agent_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// inputs are what a node that knows nothing computes, unless it is told to fail.
type inputs struct{ *node }

func (in inputs) Sandbox(p *v1.Pod) (pod.SandboxInputs, error) {
	in.ask(p.Name + " inputs.Sandbox")
	return pod.SandboxInputs{Hostname: "host-of-" + p.Name, Warnings: in.warnings}, in.faulty("inputs.Sandbox")
}

func (in inputs) Container(p *v1.Pod, c *v1.Container, sandboxIPs []string) (out pod.ContainerInputs, err error) {
	in.ask(p.Name + " inputs.Container")
	for _, ip := range sandboxIPs {
		out.Env.Set("IP", ip)
	}
	out.SubPaths = []string{"of " + c.Name}
	return out, in.faulty("inputs.Container")
}

func (in inputs) ask(what string) {
	in.disk.Lock()
	defer in.disk.Unlock()
	in.events[what]++
}

// TestInputsAreComputedOnceForEachStart: the sandbox's once a sandbox, or once
// by a podd that finds one; a container's once a start, of the addresses that
// were observed, and the same values are the volumes' and the runtime's.
func TestInputsAreComputedOnceForEachStart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		want := func(when string, sandbox, container int) {
			t.Helper()
			if a, b := s.count("shop", "inputs.Sandbox"), s.count("shop", "inputs.Container"); a != sandbox || b != container {
				t.Errorf("%s: computed %d times for a sandbox and %d for a container, want %d and %d", when, a, b, sandbox, container)
			}
		}
		want("at first", 1, 1)
		s.play("exit shop/web code=1; sleep 1m; expect shop/web running started=2")
		want("after a restart of the container", 1, 2)
		s.play("restart-agent; speak file; exit shop/web code=1; sleep 1m; expect shop/web running started=3; exit shop/web code=1; sleep 5m; expect shop/web running started=4")
		want("after a restart of podd and two more", 2, 4)
		s.play("kill-sandbox shop; sleep 1m; expect shop/web running started=5")
		want("in a new sandbox", 3, 5)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, req := range s.made {
			if req.Inputs.Env.Values["IP"] != "10.88.0.7" || req.SandboxInputs.Hostname != "host-of-shop" {
				t.Errorf("the runtime got %+v and %+v", req.Inputs, req.SandboxInputs)
			}
			if len(req.Mounts) != 1 || req.Mounts[0].HostPath != "of web" {
				t.Errorf("the volumes got %v", req.Mounts)
			}
		}
		if len(s.made) != 5 {
			t.Errorf("got %d containers", len(s.made))
		}
	})
}

func TestWhatCannotBeComputedIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.play("fail 1 inputs.Container; exit shop/web code=1; sleep 100ms; expect shop/web waiting=CreateContainerConfigError; sleep 1m; expect shop/web running started=2")
		s.warnings = []pod.Warning{{Reason: "MissingClusterDNS", Message: "none"}}
		s.play("fail 1 inputs.Sandbox; kill-sandbox shop; sleep 1m; expect shop/web running started=3; expect shop RunSandbox=2")
		if failed, warned := s.count("shop", "FailedCreatePodSandBox"), s.count("shop", "Warning MissingClusterDNS"); failed != 1 || warned != 1 {
			t.Errorf("got %d failures and %d warnings told, want one of each", failed, warned)
		}
	})
}
