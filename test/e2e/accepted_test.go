package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// untilGate is the script of a container that says in /out/order when it starts, and when
// it ends, which it does only once there is the file /out/gate.
func untilGate(name string) string {
	return "trap 'while ! test -e /out/gate; do sleep 0.1; done; echo " + name + "-ends >> /out/order; exit 0' TERM; " +
		"echo " + name + " >> /out/order; while :; do sleep 3600 & wait; done"
}

// gated is the manifest of a pod with that container. Its grace period outlasts the test.
func (e *env) gated(name string, spec ...string) string {
	return strings.Replace(e.podOf(name, untilGate(name), spec...), "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 600", 1)
}

func (e *env) openGate() {
	e.Helper()
	if err := os.WriteFile(filepath.Join(e.out, "gate"), nil, 0o600); err != nil {
		e.Fatal(err)
	}
}

// accepted is the file of a pod's spec.
func (e *env) accepted(p *v1.Pod) string {
	return filepath.Join(e.node.Root(), "accepted", string(p.UID)+".json")
}

// looked says that podd has looked at a pod, and does not only know that it is desired.
func looked(p *v1.Pod) bool { return len(p.Status.Conditions) > 0 }

// TestAPodThatWasRenamedWhilePoddWasDownWaitsForTheOldOne (kubernetes/kubernetes#23186):
// both have the same port of the host. The old one shows what it is until it has ended.
func TestAPodThatWasRenamedWhilePoddWasDownWaitsForTheOldOne(t *testing.T) {
	e := begin(t)
	manifest := func(name string) string {
		return strings.Replace(e.gated(name, "hostNetwork: true"), "    command:", e.vars().Replace("    ports: [{containerPort: ${PORT}, hostPort: ${PORT}}]\n    command:"), 1)
	}
	e.write("web.yaml", manifest("old"))
	old := e.ready("old")
	if info, err := os.Stat(e.accepted(old)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the accepted pod: %v", err)
	}
	e.stop()
	e.write("web.yaml", manifest("new"))
	e.start()
	e.waitPod("new", "rejected", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "NodePorts" {
			return errors.New(describe(p))
		}
		return nil
	})
	p := e.waitPod("old", "seen", func(p *v1.Pod) error {
		if !looked(p) {
			return errors.New(describe(p))
		}
		return nil
	})
	if p.Status.Phase != v1.PodRunning || containerID(p, "main") != containerID(old, "main") || firstContainer(p).State.Running == nil {
		t.Errorf("while it ends: got %s, want it running", describe(p))
	}
	if text := e.run("ps"); strings.Contains(text, "0/0") {
		t.Errorf("podd ps: got\n%s", text)
	}
	e.openGate()
	e.ready("new")
	e.order("old", "old-ends", "new")
	e.isGone(e.accepted(old))
}

// TestADeadlineThatPassedWhilePoddWasDown (kubernetes/kubernetes#58370): the pod is
// running until it has ended, and then it has failed.
func TestADeadlineThatPassedWhilePoddWasDown(t *testing.T) {
	e := begin(t)
	// Long enough for the container to start on this machine, as busy as it is.
	deadline := (3*time.Second + 20*e.floor()).Round(time.Second)
	e.write("job.yaml", e.gated("job", fmt.Sprintf("activeDeadlineSeconds: %d", deadline/time.Second)))
	e.ready("job")
	ready := time.Now()
	e.stop()
	e.eventually("the deadline passes", func(context.Context) error {
		if time.Since(ready) < deadline+time.Second {
			return errors.New("it has not passed")
		}
		return nil
	})
	e.start()
	p := e.waitPod("job", "seen", func(p *v1.Pod) error {
		if !looked(p) {
			return errors.New(describe(p))
		}
		return nil
	})
	if p.Status.Phase != v1.PodRunning || p.Status.Reason != "" {
		t.Errorf("while it ends: got %s, want it running", describe(p))
	}
	e.openGate()
	e.waitPod("job", "failed", func(p *v1.Pod) error {
		switch {
		case p.Status.Phase == v1.PodPending:
			t.Errorf("got %s", describe(p))
			return nil
		case p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded":
			return errors.New(describe(p))
		}
		return nil
	})
}

// TestAPodOfAPoddThatStoredNoSpecsIsTakenOver: it runs on, and its spec is stored. Where
// the manifest has gone, too, the pod ends.
func TestAPodOfAPoddThatStoredNoSpecsIsTakenOver(t *testing.T) {
	e := begin(t)
	e.write("stays.yaml", e.resting("stays"))
	e.write("goes.yaml", e.resting("goes"))
	stays, goes := e.ready("stays"), e.ready("goes")
	e.stop()
	if err := os.RemoveAll(filepath.Dir(e.accepted(stays))); err != nil {
		t.Fatal(err)
	}
	e.remove("goes.yaml")
	e.start()
	p := e.ready("stays")
	if containerID(p, "main") != containerID(stays, "main") {
		t.Errorf("got %s, want the container that ran", describe(p))
	}
	e.eventually("its spec is stored", func(context.Context) error {
		_, err := os.Stat(e.accepted(stays))
		return err
	})
	e.isGone(filepath.Join(e.node.Root(), "pods", string(goes.UID)))
	if _, err := os.Stat(e.accepted(goes)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spec of a pod that was removed: %v", err)
	}
}

// TestDeletionGracePeriodSecondsOfAManifestIsItsGracePeriod, as in static pods of
// OpenShift's bare-metal nodes: the five seconds of the spec do not count.
func TestDeletionGracePeriodSecondsOfAManifestIsItsGracePeriod(t *testing.T) {
	e := begin(t)
	e.write("vip.yaml", strings.Replace(
		e.podOf("vip", "trap 'sleep 8; echo clean >> /out/order; exit 0' TERM; echo vip >> /out/order; while :; do sleep 3600 & wait; done"),
		"metadata:", "metadata:\n  creationTimestamp:\n  deletionGracePeriodSeconds: 45", 1))
	e.ready("vip")
	e.remove("vip.yaml")
	e.order("vip", "clean")
}

// TestAHookTooLongForAnAnnotationRunsWithoutItsManifest: podd is stopped while the manifest
// is removed, and has the hook from the spec that it stored.
func TestAHookTooLongForAnAnnotationRunsWithoutItsManifest(t *testing.T) {
	e := begin(t)
	hook := "echo hook >> /out/order # " + strings.Repeat("x", 64<<10)
	manifest := strings.Replace(e.podOf("db", "echo db >> /out/order; ${REST}"), "    command:",
		"    lifecycle: {preStop: {exec: {command: [/bin/sh, -c, '"+hook+"']}}}\n    command:", 1)
	e.write("db.yaml", strings.Replace(manifest, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 60", 1))
	p := e.ready("db")
	e.stop()
	e.remove("db.yaml")
	e.start()
	e.order("db", "hook")
	e.isGone(e.accepted(p))
}
