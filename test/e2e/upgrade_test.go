package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// earlierBundle is the podd, the runtime and the images of an earlier commit, as make upgrade
// built them.
func earlierBundle(t *testing.T) testnode.Bundle {
	t.Helper()
	dir := os.Getenv("PODD_TEST_EARLIER")
	if dir == "" {
		t.Skip("PODD_TEST_EARLIER is not set: make upgrade FROM=COMMIT sets it to what that commit built")
	}
	if nodes.err != nil {
		t.Fatal(nodes.err)
	}
	return testnode.Bundle{Bin: filepath.Join(dir, "runtime/bin"), Images: filepath.Join(dir, "images"), Podd: filepath.Join(dir, "podd")}
}

// upgradedPods is the manifest of a pod with a container of each kind and with volumes of most
// kinds. Each container records its start in /out.
const upgradedPods = `apiVersion: v1
kind: Pod
metadata: {name: ${NAME}, labels: {app: upgraded}}
spec:
  terminationGracePeriodSeconds: 5
  securityContext: {fsGroup: 4242}
  initContainers:
  - {name: first, image: "${IMAGE}", command: [sh, -c, "echo x >> /out/${NAME}-first"], volumeMounts: [{name: out, mountPath: /out}]}
  - name: sidecar
    image: ${IMAGE}
    restartPolicy: Always
    command: [sh, -c, "echo x >> /out/${NAME}-sidecar; ${REST}"]
    readinessProbe: {exec: {command: [test, -e, /out/${NAME}-sidecar]}, periodSeconds: 1}
    volumeMounts: [{name: out, mountPath: /out}]
  containers:
  - name: main
    image: ${IMAGE}
    command: [sh, -c, "echo x >> /out/${NAME}-main; ${REST}"]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    livenessProbe: {exec: {command: [test, -e, /cache]}, timeoutSeconds: 5, periodSeconds: 1}
    env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}]
    volumeMounts: [{name: out, mountPath: /out}, {name: cache, mountPath: /cache}, {name: mem, mountPath: /mem}, {name: all, mountPath: /all}, {name: out, mountPath: /sub, subPath: ${NAME}}]
  volumes:
  - {name: out, hostPath: {path: "${OUT}", type: Directory}}
  - {name: cache, emptyDir: {sizeLimit: 64Mi}}
  - {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - name: all
    projected: {sources: [{configMap: {name: settings}}, {secret: {name: password}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}
`

const upgradedObjects = `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: low}}
---
{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {value: of-a-manifest}}
`

// upgrade replaces the earlier podd by the one under test, as a package would: the one ends,
// the other starts with the same directories. The runtime of the earlier bundle runs on.
func (e *env) upgrade() {
	e.Helper()
	e.stop()
	e.podd.Take(nodes.bundle)
	e.start()
}

// onEarlier prepares a node for this test alone, which runs the earlier runtime and podd.
func onEarlier(t *testing.T, earlier testnode.Bundle) *env {
	t.Helper()
	node, err := testnode.NewNode(t.Context(), base, earlier)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error("clean up node:", err)
		}
	})
	return prepareOn(t, node, earlier)
}

// ranAgain names the containers of upgradedPods that have not started exactly once.
func (e *env) ranAgain(names ...string) (twice []string) {
	e.Helper()
	for _, name := range names {
		for _, c := range []string{"-first", "-sidecar", "-main"} {
			if lines := strings.Count(e.contents(name+c), "x"); lines != 1 {
				twice = append(twice, fmt.Sprintf("%s%s ran %d times", name, c, lines))
			}
		}
	}
	return twice
}

// runEverything starts the earlier podd, with pods of manifests and of the cluster that run,
// have crashed, and have ended.
func (m *member) runEverything() {
	m.Helper()
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		m.Fatal(err)
	}
	m.start()
	for _, text := range []string{
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: low}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {value: of-the-cluster}}",
	} {
		if err := m.server.Client().Apply(m.Context(), m.document(text)); err != nil {
			m.Fatal(err)
		}
	}
	m.write("static.yaml", m.vars("${NAME}", "static").Replace(upgradedPods)+upgradedObjects)
	m.write("crashed.yaml", m.podOf("crashed", "if [ -e /out/crashed ]; then ${REST}; fi; : > /out/crashed; exit 1"))
	m.write("done.yaml", m.podOf("done", "echo x >> /out/done", "restartPolicy: Never"))
	m.bind(m.vars("${NAME}", "bound").Replace(upgradedPods))
	m.bind(m.podOf("ended", "echo x >> /out/ended", "restartPolicy: OnFailure"))
	m.ready("static")
	m.shown("bound", "ready", isReady)
	m.waitPod("crashed", "restarted once", restartedOnce)
	m.waitPod("done", "succeeded", isIn(v1.PodSucceeded))
	m.shown("ended", "succeeded", isIn(v1.PodSucceeded))
}

// An upgrade from an earlier podd restarts no container, of manifests or of a cluster. The
// status of each pod stays as it was, what has ended does not run again, values go on to
// follow their objects, and what the earlier podd began ends under the present one.
func TestAnUpgradeOfPoddRestartsNoContainer(t *testing.T) {
	earlier := earlierBundle(t)
	apiserverBinary(t)
	m := meetOn(onEarlier(t, earlier), nil)
	m.runEverything()
	containers, statuses := m.identities(), m.statuses()
	if len(containers) != 5 {
		t.Fatalf("before the upgrade: got the containers %v, want two of static, two of bound, one of crashed", containers)
	}
	m.upgrade()
	m.ready("static")
	m.shown("bound", "ready", isReady)
	m.waitPod("crashed", "restarted once, as before", restartedOnce)
	m.eventually("each pod is shown as before the upgrade", func(context.Context) error {
		if now := m.statuses(); !maps.Equal(now, statuses) {
			return fmt.Errorf("got %v, want %v", now, statuses)
		}
		return nil
	})
	// The runtime of the earlier bundle is replaced by this podd's when it ends.
	if err := m.node.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.node.Containerd.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// What comes after the upgrade is served, which the pods before it have seen by then.
	m.write("after.yaml", m.resting("after"))
	m.ready("after")
	if err := m.server.Client().Apply(t.Context(), m.document("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: high}}")); err != nil {
		t.Fatal(err)
	}
	bound := m.shown("bound", "ready", isReady)
	m.eventually("a value follows its object", func(context.Context) error {
		if got := m.exec(bound, "main", "cat", "/all/level"); got != "high" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	now := m.identities()
	delete(now, "after-"+m.podd.NodeName()+"/main")
	if !maps.Equal(now, containers) {
		t.Errorf("after the upgrade: got the containers %v, want %v", now, containers)
	}
	if twice := m.ranAgain("static", "bound"); len(twice) != 0 {
		t.Error(twice)
	}
	for _, name := range []string{"done", "ended"} {
		if lines := strings.Count(m.contents(name), "x"); lines != 1 {
			t.Errorf("%s, which had ended, ran %d times", name, lines)
		}
	}
	m.delete("bound", "ended")
	m.gone("bound", "ended")
	m.remove("static.yaml")
	m.eventually("the static pod ends", func(ctx context.Context) error {
		pods, err := m.podd.Pods(ctx)
		if err == nil && slices.ContainsFunc(pods, func(p v1.Pod) bool { return p.Name == "static-"+m.podd.NodeName() }) {
			err = errors.New("/pods lists it")
		}
		return err
	})
}

// statuses are, for each pod that podd shows, the parts of its status that an upgrade must
// not change.
func (e *env) statuses() map[string]string {
	e.Helper()
	pods, err := e.podd.Pods(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range pods {
		text := fmt.Sprintf("%s %s, QoS %s, start %s", p.UID, p.Status.Phase, p.Status.QOSClass, p.Status.StartTime)
		if p.Status.Phase == v1.PodRunning { // one that has ended gives its address back
			text += ", IP " + p.Status.PodIP
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			text += fmt.Sprintf("; %s: %s, %d restarts, ready %t, image %s", c.Name, c.ContainerID, c.RestartCount, c.Ready, c.ImageID)
		}
		all[p.Name] = text
	}
	return all
}
