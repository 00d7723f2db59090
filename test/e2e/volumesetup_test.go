package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// besideDead has volumes of several kinds after one that may hang.
const besideDead = `apiVersion: v1
kind: Pod
metadata: {name: many}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "cat /c/value /s/value > /out/many.new; mv /out/many.new /out/many; ${REST}"]
    volumeMounts:
    - {name: dead, mountPath: /dead}
    - {name: out, mountPath: /out}
    - {name: made, mountPath: /made}
    - {name: file, mountPath: /file}
    - {name: c, mountPath: /c}
    - {name: s, mountPath: /s}
    - {name: e, mountPath: /e}
    - {name: late, mountPath: /late}
  volumes:
  - name: dead
    hostPath: {path: ${DIR}/served, type: Directory}
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: made
    hostPath: {path: ${DIR}/made, type: DirectoryOrCreate}
  - name: file
    hostPath: {path: ${DIR}/made/file, type: FileOrCreate}
  - name: c
    configMap: {name: settings}
  - name: s
    secret: {secretName: password}
  - name: e
    emptyDir: {medium: Memory}
  - name: late
    configMap: {name: late}
`

// TestAVolumeThatHangsKeepsNoOtherOfItsPodFromBeingSetUp: nor from being told of when it
// fails, and from being tried again when its object appears; the pod starts when the last
// one comes.
func TestAVolumeThatHangsKeepsNoOtherOfItsPodFromBeingSetUp(t *testing.T) {
	e := begin(t)
	path := filepath.Join(e.podd.Dir, "served")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	server := e.serve(path)
	server.dies()
	e.write("objects.yaml", objectsOf("original"))
	e.write("many.yaml", e.vars().Replace(besideDead))
	e.event("many", "FailedMount", `MountVolume.SetUp failed for volume "late" : configmap "late" not found`)
	p := e.waitPod("many", "is known", func(*v1.Pod) error { return nil })
	volumes := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes")
	e.exists(volumes+"/kubernetes.io~configmap/c/value", volumes+"/kubernetes.io~secret/s/value", volumes+"/kubernetes.io~empty-dir/e", filepath.Join(e.podd.Dir, "made", "file"))

	e.write("late.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\ndata: {value: late}\n")
	e.exists(volumes + "/kubernetes.io~configmap/late/value")
	e.shows(`volumes are being set up: [dead], waiting for volume "dead" since `)
	e.othersGoOn("meanwhile")
	if e.marked("many") {
		t.Error("it runs without one of its volumes")
	}
	server.gone()
	e.mark("many")
	if got := e.contents("many"); !strings.HasPrefix(got, "original") {
		t.Errorf("got %q", got)
	}
	e.remove("many.yaml")
	e.ended("many")
}

// TestValuesAreFollowedWhileAnotherVolumeHangsAfterARestart of podd: a container ends, so
// that its pod's volumes are asked for, one of them has died, and the others follow what
// they are made of.
func TestValuesAreFollowedWhileAnotherVolumeHangsAfterARestart(t *testing.T) {
	e := begin(t)
	path := filepath.Join(e.podd.Dir, "served")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	server := e.serve(path)
	e.write("objects.yaml", objectsOf("original"))
	e.write("late.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\ndata: {value: late}\n")
	e.write("many.yaml", replaced(e, e.vars().Replace(besideDead), "mv /out/many.new /out/many;", "mv /out/many.new /out/many; while [ ! -e /out/end ]; do sleep 0.1; done; exit 1;"))
	e.mark("many")
	p := e.ready("many")
	e.stop()
	server.dies()
	e.start()
	if err := os.WriteFile(filepath.Join(e.out, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.waitPod("many", "ended", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].State.Running != nil {
			return fmt.Errorf("got %+v", c)
		}
		return nil
	})
	value := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~configmap/c/value")
	for _, next := range []string{"changed", "again", "once more"} {
		e.write("objects.yaml", objectsOf(next))
		e.eventually("the value "+next, func(context.Context) error {
			if got, err := os.ReadFile(value); err != nil || string(got) != next {
				return fmt.Errorf("got %q (%v)", got, err)
			}
			return nil
		})
	}
	if p = e.waitPod("many", "is known", func(*v1.Pod) error { return nil }); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("its container has started without one of its volumes")
	}
	server.gone()
	e.remove("many.yaml")
	e.ended("many")
}

// exists waits for files of the host.
func (e *env) exists(paths ...string) {
	e.Helper()
	e.eventually(fmt.Sprint("wait for ", paths), func(context.Context) error {
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestAPodThatIsRemovedWithItsObjectsDoesNotMissThem: they are in one file, which goes;
// nor one that is still ending when they go.
func TestAPodThatIsRemovedWithItsObjectsDoesNotMissThem(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	for i := range 5 {
		e.write("all.yaml", objectsOf("original")+"---\n"+e.vars().Replace(reading))
		e.eventually("this life has read them", func(context.Context) error { // not the mark of the last one
			_, err := os.Stat(filepath.Join(e.out, "saw-hunter2-original"))
			return err
		})
		e.ready("reading")
		e.remove("all.yaml")
		e.ended("reading")
		for _, event := range e.eventsOf("reading") {
			if strings.HasPrefix(event, "FailedMount") {
				t.Errorf("life %d: got event %q", i, event)
			}
		}
		if err := os.Remove(filepath.Join(e.out, "saw-hunter2-original")); err != nil {
			t.Fatal(err)
		}
	}
	slow := replacedAll(e, replacedAll(e, reading, "terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 3"), "trap 'exit 0' TERM", "trap '' TERM")
	e.write("objects.yaml", objectsOf("original"))
	e.write("reading.yaml", e.vars().Replace(slow))
	e.mark("saw-hunter2-original")
	e.ready("reading")
	e.remove("reading.yaml")
	e.event("reading", "Killing")
	e.remove("objects.yaml")
	e.ended("reading")
	for _, event := range e.eventsOf("reading") {
		if strings.HasPrefix(event, "FailedMount") {
			t.Errorf("got event %q while it ended", event)
		}
	}
}
