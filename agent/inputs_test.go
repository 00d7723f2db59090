package agent_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podenv"
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
	if len(c.Env)+len(c.EnvFrom) > 0 {
		in.disk.Lock()
		store, silent := in.store, in.silent
		in.disk.Unlock()
		if silent {
			return out, fmt.Errorf("configmap %q is not known yet: %w", "settings", pod.ErrObjectPending)
		}
		fromObjects, err := podenv.New(podenv.Config{Objects: store}).Container(p, c, nil)
		if err != nil {
			if in.lacking != nil {
				in.lacking()
			}
			return out, err
		}
		for _, name := range fromObjects.Env.Names {
			out.Env.Set(name, fromObjects.Env.Values[name])
		}
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

// TestAPodThatRunsIsNotSyncedForEachChange of its objects, of which there may be
// a thousand a second: nothing depends on it but the next start.
func TestAPodThatRunsIsNotSyncedForEachChange(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.files["env.yaml"] = []byte("metadata: {name: env}\nspec: {containers: [{name: web, image: web, envFrom: [{configMapRef: {name: settings}}]}]}")
		s.play("objects settings=1; apply env.yaml; sleep 1s; expect env/web running")
		before := s.syncsOf("env")
		for i := range 100 {
			s.play(fmt.Sprintf("objects settings=%d; sleep 1ms", i+2))
		}
		if n := s.syncsOf("env") - before; n != 0 {
			t.Errorf("synced %d times, want none", n)
		}
		s.play("exit env/web code=1; sleep 1s; expect env/web running started=2")
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := s.made[len(s.made)-1].Inputs.Env.Values["key"]; got != "101" {
			t.Errorf("the next start has %q, want the last version", got)
		}
	})
}

// TestAnObjectThatComesDuringTheSyncThatLackedItIsNotMissed: between the lookup
// and the wait for the next attempt.
func TestAnObjectThatComesDuringTheSyncThatLackedItIsNotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.files["env.yaml"] = []byte("metadata: {name: env}\nspec: {containers: [{name: web, image: web, envFrom: [{configMapRef: {name: settings}}]}]}")
		s.lacking = func() {
			if err := s.doObjects([]string{"objects", "settings=1"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // in which it is told
		}
		s.play("apply env.yaml; sleep 500ms; expect env/web running")
	})
}
