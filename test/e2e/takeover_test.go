package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

// kubelet prepares upstream's kubelet as the node of the cluster that m prepared, with podd's
// manifests; start then has podd take its place.
func (m *member) kubelet() *testnode.Kubelet {
	m.Helper()
	binary := os.Getenv("PODD_TEST_KUBELET")
	if binary == "" {
		m.Skip("PODD_TEST_KUBELET is not set: make test-all sets it to a kubelet")
	}
	k := testnode.NewKubelet(m.node.Place, m.node.Containerd.Endpoint(), binary)
	k.Dir = filepath.Join(m.podd.Dir, "kubelet")
	k.Config = map[string]any{"staticPodPath": m.podd.Manifests()}
	k.Args = []string{"--kubeconfig", m.kubeconfig(), "--hostname-override", m.podd.NodeName(), "--node-ip", testnode.NodeIP()}
	m.podd.Root = k.Root()
	m.podd.Config["podLogsDir"] = k.PodLogs()
	m.podd.Args = append(m.podd.Args, "--runtime-root-dir="+m.node.Root())
	m.paths = append(m.paths, filepath.Join(k.Root(), "pods"), filepath.Join(k.Root(), "ended"), filepath.Join(k.Root(), "accepted"))
	return k
}

// readySandboxes are the sandboxes of pods of a name that are ready.
func (e *env) readySandboxes(ctx context.Context, name string) (ids []string, err error) {
	all, err := e.node.CRI.Sandboxes(ctx)
	for _, s := range all {
		if s.Metadata.Name == name && s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ids = append(ids, s.Id)
		}
	}
	return ids, err
}

// A node changes its agent: the kubelet ends, and podd starts with the kubelet's root directory.
// What is still desired runs on, with its volumes; what is not ends.
func TestPoddTakesOverTheNodeOfAKubelet(t *testing.T) {
	m := meet(t)
	k := m.kubelet()
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The kubelet mounts its root directory on itself, and leaves it so.
		if err := errors.Join(k.Stop(), unix.Unmount(k.Root(), unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	d := m.newCSIDriver("takeover.csi.example.com")
	d.start()
	m.apply("{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: " + d.name + "}, spec: {attachRequired: false}}")
	m.apply(replacedAll(m, claimOfDriver, "${DRIVER}", d.name))
	m.bindClaim("data", "disk")
	m.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {word: one}}")
	m.write("static.yaml", m.resting("static"))
	stays := with(m.podOf("stays", "echo x >> /data/starts; echo x >> /disk/starts; : > /out/stays; ${REST}"), "emptyDir: {}")
	const mounts = "mountPath: /data}, {name: words, mountPath: /words}, {name: disk, mountPath: /disk}]" +
		"\n    startupProbe: {periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 2, exec: {command: [test, -e, /out/gate]}}" +
		"\n    readinessProbe: {periodSeconds: 1, failureThreshold: 1000, exec: {command: [test, -e, /out/gate]}}"
	gate := filepath.Join(m.out, "gate")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.bind(replaced(m, stays, "mountPath: /data}]", mounts) +
		"  - name: words\n    configMap: {name: words}\n  - name: disk\n    persistentVolumeClaim: {claimName: data}\n")
	m.bind(m.resting("goes"))
	before := m.shown("stays", "ready", isReady)
	goes := m.shown("goes", "ready", isReady)
	static := "static-" + m.podd.NodeName()
	m.shown(static, "ready", isReady)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := m.server.Client().DeleteNow(t.Context(), podNamed("goes")); err != nil {
		t.Fatal(err)
	}
	m.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {word: two}}")

	// From now on each probe fails. That of its start is over, though, and another must fail
	// often: what was ready stays so.
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	m.start()
	for name, want := range map[string]int{"goes": 0, static: 1} {
		m.eventually(fmt.Sprintf("%s has %d sandboxes", name, want), func(ctx context.Context) error {
			ids, err := m.readySandboxes(ctx, name)
			if err == nil && len(ids) != want {
				err = fmt.Errorf("it has %q", ids)
			}
			return err
		})
	}
	m.here(static, "ready", isReady)
	of := filepath.Join(k.Root(), "pods", string(before.UID), "volumes")
	m.eventually("the volume has the new word", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(of, "kubernetes.io~configmap/words/word"))
		if err == nil && string(text) != "two" {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
	m.eventually("podd has probed whether the container is ready", func(ctx context.Context) error {
		body, err := testnode.GetLoopback(ctx, m.podd.ReadOnlyPort(), "/metrics/probes")
		if err == nil && !regexp.MustCompile(`prober_probe_total{[^}]*pod="stays"[^}]*probe_type="Readiness"`).Match(body) {
			err = fmt.Errorf("it has not:\n%s", body)
		}
		return err
	})
	m.here("stays", "running on", func(p *v1.Pod) error {
		if err := isReady(p); err != nil {
			return err
		}
		was, is := before.Status.ContainerStatuses[0], p.Status.ContainerStatuses[0]
		if is.ContainerID != was.ContainerID || is.RestartCount != 0 || !p.Status.StartTime.Equal(before.Status.StartTime) {
			return fmt.Errorf("it has container %s since %s, had %s since %s", is.ContainerID, p.Status.StartTime, was.ContainerID, before.Status.StartTime)
		}
		return nil
	})
	if text, err := os.ReadFile(filepath.Join(of, "kubernetes.io~empty-dir/data/starts")); err != nil || string(text) != "x\n" {
		t.Errorf("the emptyDir has %q, %v", text, err)
	}
	m.eventually("the directory of the pod that went is removed", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(k.Root(), "pods", string(goes.UID))); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is there, %v", err)
		}
		return nil
	})
	m.delete("stays")
	m.gone("stays")
	if text := d.one("starts"); text != "x" {
		t.Errorf("the driver's volume has %q", text)
	}
	d.said("NodeUnpublishVolume 1: <nil>")
	d.said("NodeUnstageVolume 1: <nil>")
}
