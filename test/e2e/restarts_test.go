package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestInitContainersAreRetriedByTheirPolicy: one that fails is tried again in a
// pod that restarts, and is the end of a pod that does not.
func TestInitContainersAreRetriedByTheirPolicy(t *testing.T) {
	e := begin(t)
	e.write("retried.yaml", e.told("retried", "restartPolicy: OnFailure", []string{
		"name: try\ncommand: [/bin/sh, -c, 'echo try >> /out/order; [ $(wc -l < /out/order) = 2 ]']",
	}, []string{"name: main\ncommand: [/bin/sh, -c, 'echo main >> /out/order']"}))
	p := e.waitPod("retried", "done", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodSucceeded {
			return errors.New(describe(p))
		}
		return nil
	})
	e.order("try", "try", "main")
	if got := p.Status.InitContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("restart count of the init container: got %d, want 1", got)
	}
	e.write("failed.yaml", e.told("failed", "restartPolicy: Never", []string{
		"name: net\nrestartPolicy: Always\ncommand: [/bin/sh, -c, \"${REST}\"]", "name: try\ncommand: [/bin/sh, -c, 'exit 3']",
	}, []string{"name: main\ncommand: [/bin/sh, -c, 'touch /out/never']"}))
	p = e.waitPod("failed", "failed", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.InitContainerStatuses[0].State.Terminated == nil {
			return errors.New(describe(p))
		}
		return nil
	})
	if e.marked("never") || p.Status.ContainerStatuses[0].State.Waiting == nil || p.Status.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
		t.Errorf("got main %+v, want it never started", p.Status.ContainerStatuses[0].State)
	}
}

// TestOneContainersEndRestartsAllInPlace (KEP-5532): init containers again, in
// the same sandbox, each container counted.
func TestOneContainersEndRestartsAllInPlace(t *testing.T) {
	e := begin(t)
	e.write("all.yaml", e.told("all", "restartPolicy: Never\nterminationGracePeriodSeconds: 30", []string{
		"name: first\ncommand: [/bin/sh, -c, 'echo first >> /out/order']",
		"name: net\nrestartPolicy: Always\n" + says("net", "net-ends", "0"),
	}, []string{
		"name: source\nrestartPolicy: Never\nrestartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]\n" +
			"command: [/bin/sh, -c, \"if [ -e /out/again ]; then touch /out/third; ${REST}; fi; until [ -e /out/go ]; do sleep 0.05; done; touch /out/again; exit 42\"]",
		"name: web\n" + says("web", "web-ends", "0"),
	}))
	before := e.waitPod("all", "running", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodRunning {
			return errors.New(describe(p))
		}
		return nil
	})
	e.order("first", "net", "web")
	if err := os.WriteFile(filepath.Join(e.out, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.mark("third")
	after := e.waitPod("all", "restarted", func(p *v1.Pod) error {
		for _, c := range append(p.Status.ContainerStatuses, p.Status.InitContainerStatuses...) {
			if c.RestartCount != 1 || c.Name != "first" && !c.Ready {
				return fmt.Errorf("%s: %+v", c.Name, c)
			}
		}
		return nil
	})
	e.order("first", "net", "web", "web-ends", "net-ends", "first", "net", "web")
	if before.Status.PodIP != after.Status.PodIP || before.Status.PodIP == "" {
		t.Errorf("got address %s, then %s; want the same sandbox's", before.Status.PodIP, after.Status.PodIP)
	}
	e.event("all", "Killing", "killing")
}

// TestARefusedStartIsShownAndThenItsBackOff, as the kubelet shows it.
func TestARefusedStartIsShownAndThenItsBackOff(t *testing.T) {
	e := begin(t)
	e.write("refused.yaml", e.told("refused", "restartPolicy: Always", nil, []string{"name: main\ncommand: [/no/such/file]"}))
	var seen []string
	e.waitPod("refused", "held back", func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		if len(c) != 1 || c[0].State.Waiting == nil {
			return errors.New(describe(p))
		}
		if w := c[0].State.Waiting.Reason; len(seen) == 0 || seen[len(seen)-1] != w {
			seen = append(seen, w)
		}
		if c[0].State.Waiting.Reason != "CrashLoopBackOff" {
			return errors.New(describe(p))
		}
		if last := c[0].LastTerminationState.Terminated; last == nil || last.Reason != "StartError" || last.ExitCode != 128 {
			t.Errorf("got last state %+v, want StartError with 128", last)
		}
		return nil
	})
	if got, want := strings.Join(seen, " "), "RunContainerError CrashLoopBackOff"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want it to end with %s", got, want)
	}
}

// TestAPodsOwnBackOff: a pod says how long its containers wait, and that clean
// exits are no crashes (kubernetes/kubernetes#57291).
func TestAPodsOwnBackOff(t *testing.T) {
	e := begin(t)
	annotated := func(name, annotations, script string) {
		text := e.podOf(name, script)
		e.write(name+".yaml", replaced(e, text, "metadata:\n", "metadata:\n  annotations: {"+annotations+"}\n"))
	}
	e.write("plain.yaml", e.podOf("plain", "echo x >> /out/plain.starts; exit 1")) // the control: the node's own back-off
	began := time.Now()
	annotated("crash", `podd/restart-backoff-initial: 500ms, podd/restart-backoff-max: 1s`, "echo x >> /out/crash; [ $(wc -l < /out/crash) = 5 ] && touch /out/crashed; exit 1")
	annotated("clean", `podd/restart-backoff-success: 100ms`, "echo x >> /out/clean; [ $(wc -l < /out/clean) = 8 ] && touch /out/cleaned; exit 0")
	if took := e.mark("crashed").Sub(began); took < 2500*time.Millisecond {
		t.Errorf("five starts took %v, want the waits of 0.5, 1 and 1 s between them", took)
	}
	if n := e.starts("plain"); n >= 5 {
		t.Errorf("by then a pod with the node's back-off has started %d times too", n)
	}
	e.mark("cleaned")
	if n := e.starts("plain"); n >= 8 {
		t.Errorf("after eight starts of clean exits, a pod with the node's back-off has started %d times too", n)
	}
}
