package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// once is the manifest of a pod that adds a line to NAME.starts each time it
// runs, and runs to its end: with code first the first time, and then with 0.
func (e *env) once(name, policy string, first int) string {
	return e.podOf(name, fmt.Sprintf("echo x >> /out/%[1]s.starts; [ $(wc -l < /out/%[1]s.starts) -gt 1 ] || exit %[2]d; exit 0", name, first),
		"restartPolicy: "+policy)
}

func (e *env) phase(name string, want v1.PodPhase, code int32) *v1.Pod {
	e.Helper()
	return e.waitPod(name, string(want), func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		if p.Status.Phase != want || len(c) != 1 || c[0].State.Terminated == nil || c[0].State.Terminated.ExitCode != code {
			return errors.New(describe(p))
		}
		return nil
	})
}

// TestAPodThatRanToItsEndNeverRunsAgain: its dead container, or all of it, is
// removed behind podd's back, the runtime forgets everything while podd is away,
// and podd ends in between. Its status says what it said. podd retry runs it once
// more, and so does its manifest that comes back.
func TestAPodThatRanToItsEndNeverRunsAgain(t *testing.T) {
	e := begin(t)
	ctx := t.Context()
	ends := map[string]struct {
		policy string
		phase  v1.PodPhase
		code   int32
		starts int
	}{
		"good":    {"Never", v1.PodSucceeded, 0, 1},
		"bad":     {"Never", v1.PodFailed, 3, 1},
		"retried": {"OnFailure", v1.PodSucceeded, 0, 2},
	}
	for name, end := range ends {
		first := int(end.code)
		if end.starts > 1 {
			first = 1
		}
		e.write(name+".yaml", e.once(name, end.policy, first))
	}
	check := func(when string) {
		t.Helper()
		for name, end := range ends {
			p := e.phase(name, end.phase, end.code)
			if got := e.starts(name); got != end.starts {
				t.Errorf("%s: %s has run %d times, want %d", when, name, got, end.starts)
			}
			if at := p.Status.ContainerStatuses[0].State.Terminated.FinishedAt; at.IsZero() || p.Status.StartTime.After(at.Time) {
				t.Errorf("%s: %s is shown as begun at %v and ended at %v", when, name, p.Status.StartTime, at)
			}
		}
	}
	check("at its end")

	list, err := e.node.CRI.Containers(ctx)
	if err != nil || len(list) < len(ends) {
		t.Fatalf("got %d containers (%v)", len(list), err)
	}
	for _, c := range list { // crictl rm
		if _, err := e.node.CRI.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.Id}); err != nil {
			t.Fatal(err)
		}
	}
	e.write("next.yaml", e.resting("next")) // comes after the events of that
	e.ready("next")
	check("its container removed")
	e.kill()
	e.start()
	e.ready("next")
	check("and podd restarted")

	if err := e.node.CRI.RemoveAll(ctx); err != nil { // crictl rmp
		t.Fatal(err)
	}
	e.ready("next")
	check("all of it removed")
	e.stop()
	if err := e.node.CRI.RemoveAll(ctx); err != nil { // as of a runtime that was wiped
		t.Fatal(err)
	}
	e.start()
	e.ready("next")
	check("everything removed while podd was away")

	e.run("retry", "bad")
	e.phase("bad", v1.PodSucceeded, 0)
	e.run("retry", "good")
	e.remove("retried.yaml")
	e.waitPod("good", "run once more", func(p *v1.Pod) error {
		if n := e.starts("good"); n != 2 || p.Status.Phase != v1.PodSucceeded || p.Status.ContainerStatuses[0].RestartCount != 1 {
			return fmt.Errorf("%d starts, %s", n, describe(p))
		}
		return nil
	})
	e.podGone("retried") // what is back at once was only saved by an editor
	e.write("retried.yaml", e.once("retried", "OnFailure", 1))
	e.phase("retried", v1.PodSucceeded, 0)
	for name, want := range map[string]int{"good": 2, "bad": 2, "retried": 3} {
		if got := e.starts(name); got != want {
			t.Errorf("once more: %s has run %d times, want %d", name, got, want)
		}
	}
	e.remove("good.yaml", "bad.yaml", "retried.yaml")
	e.unnoted()
}

// unnoted waits until no pod's end is noted.
func (e *env) unnoted() {
	e.Helper()
	e.eventually("no pod's end is noted", func(context.Context) error {
		notes, err := os.ReadDir(filepath.Join(e.node.Root(), "ended"))
		if err == nil && len(notes) > 0 {
			err = fmt.Errorf("%d are there", len(notes))
		}
		return err
	})
}
