package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// disk is the document of a PersistentVolume; source is its kind and more of its spec.
func disk(name, size, source string) string {
	return `apiVersion: v1
kind: PersistentVolume
metadata: {name: ` + name + `}
spec:
  capacity: {storage: ` + size + `}
  accessModes: [ReadWriteOnce]
  ` + strings.ReplaceAll(source, "\n", "\n  ") + "\n---\n"
}

// local is the spec of one on the given node.
func local(path, node string) string {
	return "local: {path: " + path + "}\nnodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [" + node + "]}]}]}}"
}

// claimOf is the document of a claim for a gigabyte.
func claimOf(name string, more ...string) string {
	return `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ` + name + `}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  ` + strings.Join(more, "\n  ") + "\n---\n"
}

// with adds a volume at /data to what podOf says.
func with(manifest, volume string) string {
	return replaced(nil, manifest, "mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") + "  - name: data\n    " + volume + "\n"
}

func withClaim(manifest, claim string) string {
	return with(manifest, "persistentVolumeClaim: {claimName: "+claim+"}")
}

// unmounted waits until pods have nothing mounted of what is a volume's.
func (e *env) unmounted(plugin string) {
	e.Helper()
	e.eventually("wait for the unmount of "+plugin, func(context.Context) error {
		infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (bool, bool) {
			return !strings.HasPrefix(i.Mountpoint, e.node.Root()+"/pods/") || !strings.Contains(i.Mountpoint, plugin), false
		})
		if len(infos) > 0 {
			return fmt.Errorf("still there: %s", infos[0].Mountpoint)
		}
		return err
	})
}

func (e *env) file(path, want string) {
	e.Helper()
	if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != want {
		e.Errorf("%s: got %q (%v), want %q", path, got, err, want)
	}
}

// A pod waits for each document that its volume takes, says which in upstream's
// words, and runs the moment the last is there. What it writes stays: while podd is
// away, while documents change, and when the pod is gone, for the next.
func TestALocalVolumeOutlivesItsPodsAndKeepsItsClaim(t *testing.T) {
	e := begin(t)
	path := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("canary", "alive")
	e.write("pod.yaml", withClaim(e.podOf("writer", "cat /data/canary && echo of writer > /data/note && : > /out/writer; ${REST}"), "data"))
	e.event("writer", "FailedMount", `MountVolume.SetUp failed for volume "data" : error processing PVC default/data: persistentvolumeclaim "data" not found`)
	e.write("claim.yaml", claimOf("data"))
	e.event("writer", "FailedMount", "PVC is not bound: no persistent volumes available for this claim and no storage class is set")
	e.write("volumes.yaml", disk("right", "5Gi", local(path, e.podd.NodeName()))+disk("elsewhere", "1Gi", local(path, "another")))
	e.mark("writer")
	before := e.ready("writer")
	if out := e.run("get", "pvc"); !strings.Contains(out, "right") || !strings.Contains(out, "Bound") {
		t.Errorf("podd get pvc:\n%s", out)
	}
	if out := e.run("get", "pv"); !strings.Contains(out, "default/data") || !strings.Contains(out, "Available") {
		t.Errorf("podd get pv:\n%s", out)
	}
	if out := e.run("describe", before.Name); !strings.Contains(out, "PersistentVolume:  right") {
		t.Errorf("podd describe has no volume:\n%s", out)
	}

	e.kill()
	e.write("volumes.yaml", disk("right", "5Gi", local(path, e.podd.NodeName()))+disk("better", "1Gi", local(t.TempDir(), e.podd.NodeName())))
	e.start()
	if after := e.ready("writer"); after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container did not stay as it was")
	}
	e.write("reader.yaml", withClaim(e.podOf("reader", "cat /data/note > /out/note.tmp && mv /out/note.tmp /out/note; ${REST}"), "data"))
	e.mark("note")
	if got := e.contents("note"); strings.TrimSpace(got) != "of writer" {
		t.Errorf("the second pod of the node reads %q", got)
	}
	e.remove("pod.yaml", "reader.yaml")
	e.unmounted("local-volume")
	e.file(filepath.Join(path, "canary"), "alive")
	e.file(filepath.Join(path, "note"), "of writer")
}

// TestAVolumeThatCannotBeHadSaysWhy: one that is not there, is bound elsewhere, or on
// another node; others are unharmed, and each pod starts once that is put right.
func TestAVolumeThatCannotBeHadSaysWhy(t *testing.T) {
	e := begin(t)
	path, taken := t.TempDir(), t.TempDir()
	volumes := disk("taken", "1Gi", local(taken, e.podd.NodeName())) + disk("far", "1Gi", local(path, "another")) + disk("gone", "1Gi", local("/nowhere/at/all", e.podd.NodeName()))
	e.write("objects.yaml", volumes+claimOf("first", "volumeName: taken")+claimOf("second", "volumeName: taken")+claimOf("third", "volumeName: far")+
		claimOf("fourth", "volumeName: gone")+claimOf("fifth", "volumeName: none"))
	want := map[string]string{
		"second": `error processing PVC default/second: PVC is not bound: volume "taken" already bound to a different claim (default/first)`,
		"third":  `MountVolume.NodeAffinity check failed for volume "far" : no matching NodeSelectorTerms`,
		"fourth": `path "/nowhere/at/all" does not exist`,
		"fifth":  `error processing PVC default/fifth: PVC is not bound: persistentvolume "none" not found`,
	}
	for name := range want {
		e.write(name+".yaml", withClaim(e.resting(name), name))
	}
	e.write("first.yaml", withClaim(e.resting("first"), "first"))
	e.mark("first")
	for name, words := range want {
		e.event(name, "FailedMount", words)
	}
	e.write("more.yaml", disk("none", "1Gi", local(path, e.podd.NodeName())))
	e.mark("fifth")
}

// TestAHostPathVolumeAndAnEphemeralOne: neither is deleted, nor given to another.
func TestAHostPathVolumeAndAnEphemeralOne(t *testing.T) {
	e := begin(t)
	path := filepath.Join(t.TempDir(), "made")
	e.write("objects.yaml", disk("host", "1Gi", "hostPath: {path: "+path+", type: DirectoryOrCreate}\nstorageClassName: host"))
	template := "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: host, resources: {requests: {storage: 1Gi}}}}}"
	e.write("pod.yaml", with(e.podOf("scratch", "echo first > /data/note; : > /out/scratch; ${REST}"), template))
	e.mark("scratch")
	if out := e.run("get", "pvc"); !strings.Contains(out, "scratch-"+e.podd.NodeName()+"-data") {
		t.Errorf("podd get pvc:\n%s", out)
	}
	e.write("pod.yaml", with(e.podOf("scratch", ": > /out/again; ${REST}"), template)) // another pod
	e.event("scratch", "FailedMount", `volume "host": already bound to a different claim`)
	e.file(filepath.Join(path, "note"), "first")
	if out := e.run("get", "pv"); !strings.Contains(out, "Released") {
		t.Errorf("podd get pv:\n%s", out)
	}
}

// loopDevice is a block device with a file behind it.
func loopDevice(t *testing.T, megabytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, megabytes<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	device := strings.TrimSpace(string(out))
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, device)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	return device
}

// TestADeviceReachesItsContainer as a device, which it may write to unless its claim
// is read-only.
func TestADeviceReachesItsContainer(t *testing.T) {
	e := begin(t)
	device := loopDevice(t, 8)
	e.write("objects.yaml", disk("raw", "1Gi", local(device, e.podd.NodeName())+"\nvolumeMode: Block")+claimOf("raw", "volumeMode: Block"))
	blocks := func(name, script, more string) string {
		text := e.podOf(name, script) + "  - name: data\n    persistentVolumeClaim: {claimName: raw" + more + "}\n"
		return replaced(e, text, "    volumeMounts:", "    volumeDevices: [{name: data, devicePath: /dev/xvda}]\n    volumeMounts:")
	}
	e.write("writer.yaml", blocks("writer", "test -b /dev/xvda && printf 'raw words' > /dev/xvda && sync && : > /out/writer; ${REST}", ""))
	e.mark("writer")
	e.write("reader.yaml", blocks("reader", "{ head -c 9 /dev/xvda; echo; (: > /dev/xvda) 2>/dev/null && echo written || echo refused; } > /out/read.tmp; mv /out/read.tmp /out/read; ${REST}", ", readOnly: true"))
	e.mark("read")
	if got := strings.Fields(e.contents("read")); !slices.Equal(got, []string{"raw", "words", "refused"}) {
		t.Errorf("the reader: got %q", got)
	}
	e.write("wrong.yaml", withClaim(e.resting("wrong"), "raw"))
	e.event("wrong", "FailedMount", "volume data has volumeMode Block, but is specified in volumeMounts")
}

// TestADeviceIsFormattedOnceAndMounted: what a pod writes is there for the next.
func TestADeviceIsFormattedOnceAndMounted(t *testing.T) {
	e := begin(t)
	device := loopDevice(t, 64)
	e.write("objects.yaml", disk("ext", "1Gi", local(device, e.podd.NodeName()))+claimOf("ext"))
	e.write("writer.yaml", withClaim(e.podOf("writer", "echo kept > /data/note; stat -f -c %T /data > /out/kind.tmp; mv /out/kind.tmp /out/kind; ${REST}"), "ext"))
	e.mark("kind")
	if got := e.contents("kind"); !strings.Contains(got, "ext") {
		t.Errorf("got a file system of type %q", got)
	}
	e.kill()
	e.remove("writer.yaml")
	e.start()
	e.unmounted("local-volume")
	e.write("reader.yaml", withClaim(e.podOf("reader", "cat /data/note > /out/note.tmp; mv /out/note.tmp /out/note; ${REST}"), "ext"))
	e.mark("note")
	if got := strings.TrimSpace(e.contents("note")); got != "kept" {
		t.Errorf("the next pod reads %q", got)
	}
	e.remove("reader.yaml")
	e.unmounted("local-volume")
}
