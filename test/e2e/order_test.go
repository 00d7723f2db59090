package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// told is the manifest of a pod whose containers say what they do, one word a
// line, in /out/order. What a container does is "NAME: script".
func (e *env) told(name, spec string, init, main []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  %s\n", name, strings.ReplaceAll(spec, "\n", "\n  "))
	for _, list := range []struct {
		key  string
		ctrs []string
	}{{"initContainers", init}, {"containers", main}} {
		if len(list.ctrs) > 0 {
			fmt.Fprintf(&b, "  %s:\n", list.key)
		}
		for _, c := range list.ctrs {
			fmt.Fprintf(&b, "  - image: ${IMAGE}\n    volumeMounts: [{name: out, mountPath: /out}]\n    %s\n", strings.ReplaceAll(strings.TrimSpace(c), "\n", "\n    "))
		}
	}
	b.WriteString("  volumes: [{name: out, hostPath: {path: \"${OUT}\"}}]\n")
	return e.vars().Replace(b.String())
}

// says is a command that writes a word when it starts and another when it is
// told to end, after a while.
func says(start, end, after string) string {
	return fmt.Sprintf(`command: [/bin/sh, -c, "trap 'sleep %s; echo %s >> /out/order; exit 0' TERM; echo %s >> /out/order; while :; do sleep 3600 & wait; done"]`, after, end, start)
}

// hasSaid is an error if one of these lines was not written by says.
func (e *env) hasSaid(lines ...string) error {
	said, err := os.ReadFile(filepath.Join(e.out, "order"))
	for _, line := range lines {
		if !slices.Contains(strings.SplitAfter(string(said), "\n"), line) {
			return fmt.Errorf("%q is not among %q (%v)", line, said, err)
		}
	}
	return nil
}

func (e *env) order(want ...string) {
	e.Helper()
	text := strings.Join(want, " ")
	e.eventually("wait for the order "+text, func(context.Context) error {
		said, err := os.ReadFile(filepath.Join(e.out, "order")) // a container runs a moment before it says a word
		if got := strings.Join(strings.Fields(string(said)), " "); got != text {
			return fmt.Errorf("got %q (%v)", got, err)
		}
		return nil
	})
}

// TestSidecarsStartFirstAndEndLast: init containers in order, each sidecar in
// its turn; at the end the preStop hooks at once, the main container, and then
// the sidecars from the last to the first (containers/podman#20372, #25157).
func TestSidecarsStartFirstAndEndLast(t *testing.T) {
	e := begin(t)
	e.write("shop.yaml", e.told("shop", "terminationGracePeriodSeconds: 20", []string{
		"name: first\ncommand: [/bin/sh, -c, 'sleep 0.3; echo first >> /out/order']",
		"name: log\nrestartPolicy: Always\nlifecycle: {postStart: {exec: {command: [/bin/sh, -c, 'sleep 0.3; echo hooked >> /out/order']}}}\n" + says("log", "log-ends", "0"),
		"name: second\ncommand: [/bin/sh, -c, 'echo second >> /out/order']",
		"name: net\nrestartPolicy: Always\n" + says("net", "net-ends", "0.2"),
	}, []string{
		"name: web\nlifecycle: {preStop: {exec: {command: [/bin/sh, -c, 'echo hook >> /out/order; sleep 0.5']}}}\n" + says("web", "web-ends", "0.5"),
	}))
	e.ready("shop")
	e.order("first", "log", "hooked", "second", "net", "web")
	e.remove("shop.yaml")
	e.order("first", "log", "hooked", "second", "net", "web", "hook", "web-ends", "net-ends", "log-ends")
}

// TestAHookThatNeverEndsIsCutOffWithTheGracePeriod: neither hook holds up the
// end of its pod for longer than that.
func TestAHookThatNeverEndsIsCutOffWithTheGracePeriod(t *testing.T) {
	e := begin(t)
	hook := "lifecycle: {%s: {exec: {command: [/bin/sh, -c, 'echo %s >> /out/order; sleep 3600']}}}\n"
	e.write("stop.yaml", e.told("stop", "terminationGracePeriodSeconds: 2", nil, []string{"name: main\n" + fmt.Sprintf(hook, "preStop", "stopping") + says("up", "ends", "0")}))
	e.ready("stop")
	e.order("up")
	began := time.Now()
	e.remove("stop.yaml")
	e.order("up", "stopping", "ends")
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("the container was told to end after %v, want 2s for its hook", took)
	}
	// A postStart hook is cut off before any grace period.
	e.write("start.yaml", e.told("start", "terminationGracePeriodSeconds: 3000", nil, []string{"name: main\n" + fmt.Sprintf(hook, "postStart", "starting") + says("up2", "ends2", "0")}))
	e.waitPod("start", "starting", func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		if e.hasSaid("up2\n", "starting\n") != nil || len(c) != 1 || c[0].State.Waiting == nil || c[0].State.Waiting.Reason != "ContainerCreating" {
			return errors.New(describe(p))
		}
		return nil
	})
	e.remove("start.yaml")
	e.eventually("wait for its end", func(context.Context) error {
		if !strings.Contains(e.contents("order"), "ends2") {
			return errors.New("it runs")
		}
		return nil
	})
}

// TestAFailedHookIsShownAndTheContainerTriedAgain: a postStart hook that fails
// costs its container; a preStop hook that fails costs nothing.
func TestAFailedHookIsShownAndTheContainerTriedAgain(t *testing.T) {
	e := begin(t)
	e.write("app.yaml", e.told("app", "terminationGracePeriodSeconds: 2", nil, []string{
		"name: main\nlifecycle:\n  postStart: {exec: {command: [/bin/sh, -c, 'test -e /out/mended']}}\n  preStop: {exec: {command: [/bin/false]}}\n" + says("up", "ends", "0"),
	}))
	e.event("app", "FailedPostStartHook", "PostStartHook failed")
	e.event("app", "Killing", "FailedPostStartHook")
	e.event("app", "FailedPreStopHook", "PreStopHook failed")
	e.write("other.yaml", e.podOf("other", ": > /out/mended; ${REST}"))
	e.ready("app")
}

// TestWhatTheNodeEndedStaysEnded: a pod whose deadline passed is Failed, and a
// restart of podd does not start it again.
func TestWhatTheNodeEndedStaysEnded(t *testing.T) {
	e := begin(t)
	e.write("job.yaml", e.told("job", "activeDeadlineSeconds: 6\nterminationGracePeriodSeconds: 5", nil, []string{"name: main\n" + says("up", "ends", "0")}))
	failed := func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			return errors.New(describe(p))
		}
		return nil
	}
	e.waitPod("job", "ended", failed)
	e.event("job", "DeadlineExceeded", "longer than the specified deadline")
	e.order("up", "ends")
	e.stop()
	e.start()
	e.waitPod("job", "ended", failed)
	// A pod that comes later runs: by then the job would have run, too.
	e.write("later.yaml", e.podOf("later", ": > /out/later; ${REST}"))
	e.ready("later")
	e.order("up", "ends")
}

// TestTheEndOfAPodHurriesAKillUnderWay: a container that takes its time to die
// for its probe dies with its pod, in the pod's grace period.
func TestTheEndOfAPodHurriesAKillUnderWay(t *testing.T) {
	e := begin(t)
	e.write("slow.yaml", e.told("slow", "terminationGracePeriodSeconds: 2", nil, []string{
		"name: main\nlivenessProbe: {periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 3000, exec: {command: [/bin/false]}}\n" +
			`command: [/bin/sh, -c, "trap 'echo told >> /out/order' TERM; echo up >> /out/order; while :; do sleep 1; done"]`,
	}))
	e.event("slow", "Killing", "failed liveness probe")
	e.order("up", "told")
	began := time.Now()
	e.remove("slow.yaml")
	e.eventually("wait until the pod is gone", func(ctx context.Context) error {
		pods, err := e.podd.Pods(ctx)
		if err == nil && len(pods) > 0 {
			err = errors.New("it is " + describe(&pods[0]))
		}
		return err
	})
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("the pod was gone after %v, want its grace period of 2s", took)
	}
}
