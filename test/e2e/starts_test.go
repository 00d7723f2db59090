package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAStartThatPoddsEndInterruptedRunsOnce (kubernetes/kubernetes#123839): podd is killed
// while the runtime makes a container. What never ran has not ended.
func TestAStartThatPoddsEndInterruptedRunsOnce(t *testing.T) {
	e := begin(t)
	for _, policy := range []string{"Never", "OnFailure"} {
		name := strings.ToLower(policy)
		// The runc that makes the container mounts it, and waits for its server meanwhile.
		path := t.TempDir()
		files := e.serve(path, "runc")
		e.write(name+".yaml", withMount(e.podOf(name, "echo ran >> /out/"+name, "restartPolicy: "+policy), path, "", ""))
		files.said("held")
		e.kill()
		e.eventually("the start of "+name+" has failed", func(ctx context.Context) error {
			all, err := e.node.CRI.Containers(ctx)
			if err != nil {
				return err
			}
			for _, c := range all {
				if c.Metadata.Name == "main" && c.State == runtimeapi.ContainerState_CONTAINER_EXITED && strings.HasPrefix(c.Labels["io.kubernetes.pod.name"], name+"-") {
					return nil
				}
			}
			return fmt.Errorf("got %v", all)
		})
		if err := files.server.Process.Signal(unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		e.start()
		p := e.waitPod(name, "over", func(p *v1.Pod) error {
			if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
				return nil
			}
			return errors.New(describe(p))
		})
		said, _ := os.ReadFile(filepath.Join(e.out, name)) // nothing, if it never ran
		if p.Status.Phase != v1.PodSucceeded || string(said) != "ran\n" {
			t.Errorf("%s: it is %s, and said %q; want Succeeded, and once", name, describe(p), said)
		}
	}
}

// TestAPostStartHookThatPoddsEndInterruptedRunsAgain (kubernetes/kubernetes#122803): before
// its container shows as ready.
func TestAPostStartHookThatPoddsEndInterruptedRunsAgain(t *testing.T) {
	e := begin(t)
	manifest := e.podOf("hooked", ": > /out/hooked; ${REST}") // the hook ends once go is there
	hook := e.vars().Replace("    lifecycle: {postStart: {exec: {command: [/bin/sh, -c, 'echo begins >> /out/hook; until [ -e /out/go ]; do sleep 0.1; done; echo done >> /out/hook']}}}\n")
	e.write("hooked.yaml", strings.Replace(manifest, "    command:", hook+"    command:", 1))
	begun := func(times int) {
		t.Helper()
		e.eventually(fmt.Sprintf("the hook has begun %d times", times), func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(e.out, "hook"))
			if err == nil && strings.Count(string(text), "begins\n") != times {
				err = fmt.Errorf("it said %q", text)
			}
			return err
		})
	}
	begun(1)
	e.kill()
	e.start()
	begun(2)
	e.stop()
	e.start()
	begun(3)
	p := e.waitPod("hooked", "listed", func(*v1.Pod) error { return nil })
	if p.Status.Phase != v1.PodPending || condition(p, v1.PodReady) == v1.ConditionTrue {
		t.Errorf("while its hook runs: it is %s", describe(p))
	}
	e.write("other.yaml", e.podOf("other", ": > /out/go; ${REST}"))
	e.ready("hooked")
	e.kill()
	e.start()
	e.ready("hooked")
	e.ready("other")
	if got := e.contents("hook"); !strings.Contains(got, "done\n") || strings.Count(got, "begins\n") != 3 {
		t.Errorf("in the end the hook had said %q", got)
	}
}
