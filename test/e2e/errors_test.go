package e2e

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// TestWhatCannotStartSaysWhy: each container of one pod fails in another way,
// and its state has the reason, exit code and message that the kubelet's has. A
// megabyte of last words is cut to the container's share of 12 KiB.
func TestWhatCannotStartSaysWhy(t *testing.T) {
	e := begin(t)
	e.apply("errors.yaml")
	type end struct {
		waiting, reason string
		code            int32
		message         []string // what is in it
	}
	want := map[string]end{
		"missing":  {reason: "StartError", code: 128, message: []string{"/no/such/program", "no such file or directory"}},
		"cwd":      {reason: "StartError", code: 128, message: []string{"/bin/sh", "not a directory"}},
		"root":     {waiting: "CreateContainerConfigError", message: []string{"container has runAsNonRoot and image will run as root (pod: \"errors-", ", container: root)"}},
		"seccomp":  {waiting: "CreateContainerError", message: []string{"seccomp", "no/such.json"}},
		"key":      {waiting: "CreateContainerConfigError", message: []string{"couldn't parse env file"}},
		"relative": {reason: "Error", code: 1, message: []string{"said"}},
		"flood":    {reason: "Error", code: 3, message: []string{"xxx"}},
		"logs":     {reason: "Error", code: 4, message: []string{"yyy"}},
		"dir":      {reason: "Error", code: 5, message: []string{"Error on reading termination log", "not a regular file"}},
		"deep":     {reason: "Error", code: 6, message: []string{"deep"}},
	}
	p := e.waitPod("errors", "as far as it comes", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			w := want[c.Name]
			switch {
			case w.waiting != "" && (c.State.Waiting == nil || c.State.Waiting.Reason != w.waiting):
				return errors.New(describe(p))
			case w.waiting == "" && c.State.Terminated == nil:
				return errors.New(describe(p))
			}
		}
		if len(p.Status.ContainerStatuses) != len(want) {
			return errors.New(describe(p))
		}
		return nil
	})
	for _, c := range p.Status.ContainerStatuses {
		w, message := want[c.Name], ""
		if c.State.Waiting != nil {
			message = c.State.Waiting.Message
		} else {
			message = c.State.Terminated.Message
			if got := c.State.Terminated; got.Reason != w.reason || got.ExitCode != w.code {
				t.Errorf("%s: got %s with code %d, want %s with %d", c.Name, got.Reason, got.ExitCode, w.reason, w.code)
			}
		}
		for _, words := range w.message {
			if !strings.Contains(message, words) {
				t.Errorf("%s: got the message %.300q, want %q in it", c.Name, message, words)
			}
		}
		if len(message) > 12<<10/len(want) || c.RestartCount != 0 {
			t.Errorf("%s: got %d bytes of message, %d restarts", c.Name, len(message), c.RestartCount)
		}
	}
	e.event("errors", "Failed", "Error: container has runAsNonRoot and image will run as root")
	e.event("errors", "Failed", "Error: failed to create containerd task", "/no/such/program")
	e.event("errors", "Created", "Container created")
	e.event("errors", "Started", "Container started")
}

// TestARuntimeClassNamesAHandlerOfTheRuntime: there are no RuntimeClass objects
// on a node of its own.
func TestARuntimeClassNamesAHandlerOfTheRuntime(t *testing.T) {
	e := begin(t)
	e.write("known.yaml", e.podOf("known", ": > /out/known; ${REST}", "runtimeClassName: runc"))
	e.write("unknown.yaml", e.podOf("unknown", ": > /out/unknown; ${REST}", "runtimeClassName: kata"))
	e.mark("known")
	e.event("unknown", "FailedCreatePodSandBox", `Failed to create pod sandbox: RuntimeClass "kata" not found`, `names a handler of the container runtime, which has "runc"`)
	if e.marked("unknown") {
		t.Error("a pod of an unknown RuntimeClass runs")
	}
}

// TestAnInitContainerWritesTheVariablesOfTheOthers: fileKeyRef (KEP-3721).
func TestAnInitContainerWritesTheVariablesOfTheOthers(t *testing.T) {
	e := begin(t)
	e.apply("env-file.yaml")
	e.mark("vars")
	if got, want := e.contents("vars"), "first=one two\nsecond=\"over\nlines\"\nthird=\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.ready("env-file")
}

// TestAStopSignalOfThePodsOwnAndSharedProcesses: the containers of the pod see
// one another's processes, and one ends by the signal that it names.
func TestAStopSignalOfThePodsOwnAndSharedProcesses(t *testing.T) {
	e := begin(t)
	e.apply("processes.yaml")
	e.mark("waits")
	if got := strings.Fields(e.contents("shared")); len(got) < 3 || got[0] != "/pause" || !strings.Contains(e.contents("shared"), "/bin/sh") {
		t.Errorf("the first process is not the sandbox's: %q", e.contents("shared"))
	}
	p := e.ready("processes")
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == "waits" && (c.StopSignal == nil || *c.StopSignal != v1.SIGUSR2) {
			t.Errorf("status.stopSignal: got %v", c.StopSignal)
		}
	}
	e.remove("processes.yaml")
	e.mark("usr2")
	if e.marked("term") {
		t.Error("SIGTERM was sent too")
	}
}

// TestARuntimesErrorShowsNoSecret: the value of a variable, which is the program that cannot
// be started, is in no status, event, log or answer of podd's.
func TestARuntimesErrorShowsNoSecret(t *testing.T) {
	e := begin(t)
	const secret = "Geheim-Value-Of-A-Secret"
	e.write("secret.yaml", `apiVersion: v1
kind: Pod
metadata: {name: shown}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: `+testnode.ImageBusybox+`
    command: ["$(PW)"]
    env: [{name: PW, valueFrom: {secretKeyRef: {name: shown, key: pw}}}]
---
apiVersion: v1
kind: Secret
metadata: {name: shown}
stringData: {pw: `+secret+`}
`)
	p := e.waitPod("shown", "as far as it comes", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed {
			return errors.New(describe(p))
		}
		return nil
	})
	got := p.Status.ContainerStatuses[0].State.Terminated
	if got == nil || got.Reason != "StartError" || !strings.Contains(got.Message, "<masked>") || !strings.Contains(got.Message, "not found") {
		t.Errorf("got %s, want a masked message", describe(p))
	}
	e.event("shown", "Failed", "<masked>")
	for what, text := range map[string]string{
		"the status": describe(p), "events": strings.Join(e.eventsOf("shown"), "\n"), "podd ps": e.run("ps"), "podd describe": e.run("describe", p.Name),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows it: %s", what, text)
		}
	}
}
