package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// beside makes a second podd with directories of its own on the test's runtime.
// It is ended and its pods are removed with the test.
func (e *env) beside(t *testing.T) *testnode.Podd {
	t.Helper()
	dir := filepath.Join(e.podd.Dir, "beside")
	b, err := testnode.NewPodd(e.node.Place, nodes.bundle, dir)
	if err != nil {
		t.Fatal(err)
	}
	b.Root, b.State = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	b.Config = map[string]any{"healthzPort": 0, "readOnlyPort": 0, "containerRuntimeEndpoint": e.node.Containerd.Endpoint()}
	t.Cleanup(func() {
		if err := errors.Join(b.DeleteAll(), b.Signal(unix.SIGTERM)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of the second podd's log:\n%s", b.LogTail(4000))
		}
	})
	return b
}

// runs waits until a podd shows its only pod running.
func (e *env) runs(p *testnode.Podd, name string) {
	e.Helper()
	e.eventually(name+" runs", func(ctx context.Context) error {
		pods, err := p.Pods(ctx)
		if err != nil {
			return err
		}
		if len(pods) != 1 || !strings.HasPrefix(pods[0].Name, name+"-") || pods[0].Status.Phase != v1.PodRunning {
			return fmt.Errorf("got %d pods", len(pods))
		}
		return nil
	})
}

// hasNoPod waits until the last pod of a podd is gone.
func (e *env) hasNoPod(p *testnode.Podd) {
	e.Helper()
	e.eventually("the last pod goes", func(ctx context.Context) error {
		pods, err := p.Pods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("got %d pods", len(pods))
		}
		return err
	})
}

func (e *env) begunAgain(p *testnode.Podd, sig unix.Signal) {
	e.Helper()
	if err := errors.Join(p.Signal(sig), p.Start(), p.WaitReady(e.Context())); err != nil {
		e.Fatal(err)
	}
}

// TestTwoPoddsOnOneRuntimeEndNoPodOfEachOther: each has directories of its own,
// and took the other's pods for orphans.
func TestTwoPoddsOnOneRuntimeEndNoPodOfEachOther(t *testing.T) {
	e := begin(t)
	b := e.beside(t)
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.write("mine.yaml", e.resting("mine"))
	if _, err := b.Apply("theirs.yaml", e.resting("theirs")); err != nil {
		t.Fatal(err)
	}
	e.mark("mine", "theirs")
	e.runs(e.podd, "mine")
	e.runs(b, "theirs")
	before := e.identities()
	e.mayEnd = true
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		e.begunAgain(e.podd, sig)
		e.begunAgain(b, sig)
		e.runs(e.podd, "mine")
		e.runs(b, "theirs")
	}
	e.eventually("each names the other", func(context.Context) error {
		if mine, theirs := e.podd.LogTail(1<<20), b.LogTail(1<<20); strings.Contains(mine, "default/theirs") && strings.Contains(theirs, "default/mine") {
			return nil
		}
		return errors.New("not yet")
	})
	if now := e.identities(); !maps.Equal(before, now) {
		t.Errorf("got %v, want %v", now, before)
	}

	// With its root directory's identity lost, the pod is another's, though it is
	// the same pod: it does not run twice.
	identity := filepath.Join(b.Root, "instance")
	old, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Signal(unix.SIGTERM), os.Remove(identity), b.Start(), b.WaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	e.eventually("it waits for the other's pod", func(ctx context.Context) error {
		body, err := b.Get(ctx, "/podd/v1/events")
		if err == nil && !strings.Contains(string(body), "another podd (instance "+strings.TrimSpace(string(old))+")") {
			err = errors.New("no event says so")
		}
		return err
	})
	if now := e.identities(); !maps.Equal(before, now) {
		t.Errorf("with another identity: got %v, want %v", now, before)
	}
	// As the log says: the identity put back takes the pods over.
	if err := errors.Join(b.Signal(unix.SIGTERM), os.WriteFile(identity, old, 0o600), b.Start(), b.WaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	e.runs(b, "theirs")
	if now := e.identities(); !maps.Equal(before, now) {
		t.Errorf("with its own identity: got %v, want %v", now, before)
	}
	if err := b.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	e.hasNoPod(b)
	if now := e.identities(); len(now) != 1 || now["mine-"+e.podd.NodeName()+"/main"] != before["mine-"+e.podd.NodeName()+"/main"] {
		t.Errorf("when its own pod is gone: got %v, want the other's, of %v", now, before)
	}
}

// TestPodsDoNotRunTwiceAfterAChangeOfEndpoint: podd refuses another runtime while
// its pods run on the one before, and takes it when they have ended.
func TestPodsDoNotRunTwiceAfterAChangeOfEndpoint(t *testing.T) {
	e := begin(t)
	e.write("a.yaml", e.resting("a"))
	e.mark("a")
	e.stop()
	e.podd.Args = []string{"--container-runtime-endpoint", "unix://" + filepath.Join(e.podd.Dir, "other.sock")}
	if err := e.podd.Start(); err != nil {
		t.Fatal(err)
	}
	e.eventually("podd refuses", func(context.Context) error {
		if ended, how := e.podd.Ended(); !ended || !strings.Contains(how, "exit status") {
			return errors.New("it runs")
		}
		return nil
	})
	if log := e.podd.LogTail(2000); !strings.Contains(log, "1 pods still run on the container runtime of podd's last start, "+e.node.Containerd.Endpoint()) {
		t.Errorf("log: got %s, want the sentence", log)
	}
	e.podd.Args = nil
	e.start()
	e.ready("a")
	e.remove("a.yaml")
	e.hasNoPod(e.podd)
	e.stop()
	e.podd.Args = []string{"--container-runtime-endpoint", "unix://" + filepath.Join(e.podd.Dir, "other.sock")}
	e.start()
	e.stop()
	e.podd.Args = nil
}
