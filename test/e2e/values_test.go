package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// downward is a pod that writes down what its volumes tell it of itself, what they
// are, and whether it may write there.
const downward = `apiVersion: v1
kind: Pod
metadata:
  name: downward
  labels: {app: shop}
  annotations: {note: "it's \"quoted\""}
spec:
  terminationGracePeriodSeconds: 5
  securityContext: {fsGroup: 4321}
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "{
      echo labels: $(cat /d/labels);
      echo note: $(cat /d/deep/note);
      echo cpu: $(cat /d/cpu);
      echo name: $(cat /p/name);
      echo modes: $(stat -L -c '%a %g' /d/cpu /p/name);
      echo kind: $(stat -f -c %T /d) $(stat -f -c %T /p);
      echo link: $(readlink /d/labels);
      touch /d/x /p/x 2>/dev/null && echo write: yes || echo write: no;
      } > /out/downward.tmp; mv /out/downward.tmp /out/downward; ${REST}"]
    resources: {limits: {cpu: 250m}}
    volumeMounts: [{name: out, mountPath: /out}, {name: d, mountPath: /d}, {name: p, mountPath: /p}, {name: scratch, mountPath: /d/scratch}]
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: scratch
    emptyDir: {}
  - name: d
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: deep/note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
      - {path: cpu, mode: 0400, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}
  - name: p
    projected:
      sources:
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
`

func TestVolumesTellAPodOfItself(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.write("downward.yaml", e.vars().Replace(downward))
	e.expect("downward", e.facts("downward"), map[string]string{
		"labels": `app="shop"`, "note": `it's "quoted"`, "cpu": "250", "name": "downward-" + e.podd.NodeName(),
		"modes": "440 4321 644 4321", "kind": "tmpfs tmpfs", "link": "..data/labels", "write": "no",
	})
}

// follower is a pod that marks each value that it sees in its volumes, with the
// objects they come from in the same file.
const follower = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {value: "${VALUE}"}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {value: hunter2-${VALUE}}
---
apiVersion: v1
kind: Pod
metadata: {name: follower}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1234, fsGroup: 4321}
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM;
      echo modes: $(stat -L -c '%a %g' /c/value /s/value /p/secret) > /out/follower.tmp;
      echo kinds: $(stat -f -c %T /s) $(stat -f -c %T /p) >> /out/follower.tmp;
      echo once: $(cat /once) >> /out/follower.tmp;
      mv /out/follower.tmp /out/follower;
      while :; do
        for f in /c/value /s/value /p/plain /p/secret; do v=$(cat $f) && touch /out/saw-$(echo $f | tr / -)-$v; done;
        cat /once > /out/once.tmp && mv /out/once.tmp /out/once; sleep 0.05;
      done"]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: c, mountPath: /c}
    - {name: s, mountPath: /s}
    - {name: p, mountPath: /p}
    - {name: c, mountPath: /once, subPath: value}
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: c
    configMap: {name: settings}
  - name: s
    secret: {secretName: password, defaultMode: 0400}
  - name: p
    projected:
      sources:
      - configMap: {name: settings, items: [{key: value, path: plain}]}
      - secret: {name: password, items: [{key: value, path: secret, mode: 0400}]}
`

// A change of objects beside their pod in one file reaches its volumes, and leaves
// the pod as it is; also where podd was away meanwhile.
func TestConfigMapAndSecretBesideTheirPodReachItsVolumesAsTheyChange(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	write := func(value string) { e.write("follower.yaml", e.vars("${VALUE}", value).Replace(follower)) }
	seen := func(value string) {
		e.mark("saw--c-value-"+value, "saw--p-plain-"+value, "saw--s-value-hunter2-"+value, "saw--p-secret-hunter2-"+value)
	}
	write("one")
	e.expect("follower", e.facts("follower"), map[string]string{"modes": "644 4321 440 4321 440 4321", "kinds": "tmpfs tmpfs", "once": "one"})
	seen("one")
	before := e.ready("follower")

	write("two")
	seen("two")
	e.kill()
	write("three")
	e.start()
	seen("three")
	write("four")
	seen("four")
	if once := strings.TrimSpace(e.contents("once")); once != "one" {
		t.Errorf("a subPath shows %q, want what was there as its container started", once)
	}
	after := e.ready("follower")
	if after.UID != before.UID || after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod did not stay as it was: %s", describe(after))
	}
	e.noneOnDisk("hunter2")
}

func TestAPodWaitsForItsConfigMapAndRunsTheMomentItIsThere(t *testing.T) {
	e := begin(t)
	parts := strings.SplitN(e.vars("${VALUE}", "one").Replace(follower), "---\n", 3)
	e.worldWritable()
	e.write("pod.yaml", parts[2])
	e.event("follower", "FailedMount", `MountVolume.SetUp failed for volume "c" : configmap "settings" not found`)
	e.write("objects.yaml", parts[0]+"---\n"+parts[1])
	e.mark("saw--c-value-one", "saw--s-value-hunter2-one")
}

// noneOnDisk checks that no file of pods on a disk has the text.
func (e *env) noneOnDisk(text string) {
	e.Helper()
	root := filepath.Join(e.node.Root(), "pods")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		var on unix.Statfs_t
		if err != nil || unix.Statfs(path, &on) != nil {
			return nil // gone meanwhile
		}
		if d.IsDir() && on.Type == unix.TMPFS_MAGIC {
			return fs.SkipDir
		}
		if content, err := os.ReadFile(path); err == nil && d.Type().IsRegular() && strings.Contains(string(content), text) {
			e.Errorf("%s has a secret, on a disk", path)
		}
		return nil
	})
	if err != nil {
		e.Error(err)
	}
}
