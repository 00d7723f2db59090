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
)

// reading is a pod that marks each value that it sees in its volumes as
// saw-SECRET-VALUE: eight letters, perhaps again and again; any other as torn.
const reading = `apiVersion: v1
kind: Pod
metadata: {name: reading}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM;
      while :; do
        set -- $(fold -w 8 /c/value | sort -u);
        [ $# -le 1 ] || : > /out/torn;
        : > /out/saw-$(cat /s/value)-$1; sleep 0.05;
      done"]
    volumeMounts: [{name: out, mountPath: /out}, {name: c, mountPath: /c}, {name: s, mountPath: /s}]
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: c
    configMap: {name: settings}
  - name: s
    secret: {secretName: password}
`

// objectsOf are the ConfigMap and the Secret of reading, with an eight letter value.
func objectsOf(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {value: " + value + "}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {value: hunter2}\n"
}

// TestABrokenObjectIsNamedAndItsPodsServeOn: whatever becomes of the file, its pods
// have what they had, podd says what is wrong with it, and the mended one is taken.
func TestABrokenObjectIsNamedAndItsPodsServeOn(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	const file = "objects.yaml"
	path := filepath.Join(e.podd.Manifests(), file)
	e.write(file, objectsOf("original"))
	e.write("reading.yaml", e.vars().Replace(reading))
	e.mark("saw-hunter2-original")
	before := e.identities()
	put := func(text string) func() error { // in place, as careless programs write
		return func() error { return os.WriteFile(path, []byte(text), 0o644) }
	}
	replaced := func(old, text string) func() error { return put(replaced(e, objectsOf("original"), old, text)) }
	instead := func(make func(path string) error) func() error {
		return func() error { return errors.Join(os.Remove(path), make(path)) }
	}
	for i, bad := range []struct {
		what string
		do   func() error
		says []string
	}{
		{"garbage", put("\x00\x01\x02 not a manifest"), []string{"binary", "save it as UTF-8"}},
		{"emptied", put(""), []string{"is empty"}},
		{"half", put(objectsOf("original")[:40]), []string{"metadata"}},
		{"a directory", instead(func(path string) error { return os.Mkdir(path, 0o755) }), []string{"directory"}},
		{"a link that leads nowhere", instead(func(path string) error { return os.Symlink("/no/where", path) }), []string{"symlink to /no/where"}},
		{"a key that leads elsewhere", replaced("{value: ", "{../../../etc/passwd: "), []string{"../../../etc/passwd", "a valid config key"}},
		{"a key with two dots", replaced("{value: ", "{'..': "), []string{"must not be '..'"}},
		{"a long key", replaced("{value: ", "{"+strings.Repeat("k", 254)+": "), []string{"no more than 253"}},
		{"a number", replaced("original", "12345678"), []string{"data[value]", "got the number 12345678, want a string", "put it in quotes"}},
		{"more than a mebibyte", replaced("original", strings.Repeat("x", 1<<20+1)), []string{"1048576"}},
		{"no base64", replaced("stringData: {value: hunter2", "data: {value: '!hunter2!'"), []string{"data[value]", "base64"}},
		{"binary data that is none", replaced("data: {value: original", "binaryData: {value: '!original!'"), []string{"binaryData[value]", "base64"}},
		{"a misspelt field", replaced("data:", "dta:"), []string{"dta", "did you mean", "data"}},
	} {
		if err := bad.do(); err != nil {
			t.Fatalf("%s: %v", bad.what, err)
		}
		p := e.problem(file, bad.says...)
		if !p.LastGoodInUse {
			t.Errorf("%s: got %+v, want it to say that the last good version is used", bad.what, p)
		}
		for what, text := range map[string]string{"podd ps": e.run("ps"), "the log": e.podd.LogTail(1 << 20), "podd events": e.run("events")} {
			if strings.Contains(text, "hunter2") {
				t.Errorf("%s: %s shows the value of a Secret", bad.what, what)
			}
		}
		value := fmt.Sprintf("mended%02d", i)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := put(objectsOf(value))(); err != nil {
			t.Fatal(err)
		}
		e.mark("saw-hunter2-" + value)
		e.noProblem()
	}
	if err := os.Chmod(path, 0); err != nil { // podd is root, and reads on
		t.Fatal(err)
	}
	if now := e.identities(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the pod did not go on as it was: got %v, want %v", now, before)
	}
	e.noneOnDisk("hunter2")
}

// TestAnObjectThatGoesIsMissedByWhatStartsOnly: what runs keeps the last content, a
// container that starts waits for it, in the kubelet's words, and starts the moment
// it is back.
func TestAnObjectThatGoesIsMissedByWhatStartsOnly(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.write("objects.yaml", objectsOf("original"))
	e.write("reading.yaml", e.vars().Replace(reading))
	e.mark("saw-hunter2-original")
	e.write("short.yaml", replaced(e, e.podOf("short", "rm -f /out/end; echo $value >> /out/short; ${REST}"),
		"    volumeMounts:", "    envFrom: [{configMapRef: {name: settings}}]\n    livenessProbe: {exec: {command: [test, '!', -e, /out/end]}, initialDelaySeconds: 1, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}\n    volumeMounts:"))
	e.mark("short")
	before := e.ready("reading").Status.ContainerStatuses[0].ContainerID
	e.remove("objects.yaml")
	e.event("reading", "FailedMount", `configmap "settings" not found`)
	if err := os.WriteFile(filepath.Join(e.out, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.waiting("short", "CreateContainerConfigError")
	e.event("short", "Failed", `configmap "settings" not found`)
	if table := e.run("ps"); !oneLineHolds(table, "", []string{"short", "settings"}) {
		t.Errorf("podd ps does not say what the pod waits for:\n%s", table)
	}
	if got := e.exec(e.ready("reading"), "main", "/bin/cat", "/c/value", "/s/value"); got != "originalhunter2" {
		t.Errorf("the pod that runs sees %q, want what there was", got)
	}
	e.write("objects.yaml", objectsOf("nextnext"))
	e.mark("saw-hunter2-nextnext")
	e.eventually("the container starts", func(context.Context) error {
		if got := e.contents("short"); got != "original\nnextnext\n" {
			return fmt.Errorf("it saw %q", got)
		}
		return nil
	})
	if after := e.ready("reading").Status.ContainerStatuses[0].ContainerID; after != before {
		t.Error("the pod that ran was restarted")
	}
}

// TestOfTwoObjectsOfOneNameTheFirstIsUsedUntilItGoes.
func TestOfTwoObjectsOfOneNameTheFirstIsUsedUntilItGoes(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.write("a.yaml", objectsOf("original"))
	e.write("reading.yaml", e.vars().Replace(reading))
	e.mark("saw-hunter2-original")
	e.write("b.yaml", objectsOf("imposter"))
	e.problem("b.yaml", "defined twice", "a.yaml", "remove one")
	e.write("a.yaml", objectsOf("followed"))
	e.mark("saw-hunter2-followed")
	if e.marked("saw-hunter2-imposter") {
		t.Error("the second of a name is used beside the first")
	}
	e.remove("a.yaml")
	e.mark("saw-hunter2-imposter")
	e.noProblem()
}

// TestAnUpdateThatDoesNotFitTheDiskLeavesTheOldVersionWhole, is told, and is carried
// out when there is room; the same where the file system is read-only.
func TestAnUpdateThatDoesNotFitTheDiskLeavesTheOldVersionWhole(t *testing.T) {
	e := prepare(t)
	e.worldWritable()
	pods := filepath.Join(e.node.Root(), "pods")
	if err := os.MkdirAll(pods, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("full", pods, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	e.before["mount"] = append(e.before["mount"], "tmpfs on "+pods)
	e.Cleanup(func() {
		if err := unix.Unmount(pods, 0); err != nil {
			t.Error(err)
		}
	})
	e.start()
	large := func(value string) string { return objectsOf(strings.Repeat(value, 4<<10)) }
	e.write("objects.yaml", large("original"))
	e.write("reading.yaml", e.vars().Replace(reading))
	e.mark("saw-hunter2-original")
	ballast := filepath.Join(pods, "ballast")
	for i, bad := range []struct {
		what     string
		do, undo func() error
	}{
		{"no space left on device", func() error { fill(t, ballast); return nil }, func() error { return os.Remove(ballast) }},
		{"read-only file system", func() error { return unix.Mount("", pods, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") }, func() error { return unix.Mount("", pods, "", unix.MS_REMOUNT, "") }},
	} {
		if err := bad.do(); err != nil {
			t.Fatal(err)
		}
		value := fmt.Sprintf("update%02d", i)
		e.write("objects.yaml", large(value))
		e.event("reading", "FailedMount", bad.what)
		p := e.ready("reading")
		if got := strings.Fields(e.exec(p, "main", "/bin/sh", "-c", "fold -w 8 /c/value | uniq -c")); len(got) != 2 || got[0] != "4096" || got[1] == value {
			t.Errorf("%s: the volume shows %q, want the whole of the version before", bad.what, got)
		}
		if e.marked("saw-hunter2-" + value) {
			t.Errorf("%s: the new version is there", bad.what)
		}
		if err := bad.undo(); err != nil {
			t.Fatal(err)
		}
		e.mark("saw-hunter2-" + value)
	}
	if e.marked("torn") {
		t.Error("a reader saw a part of a version")
	}
	e.remove("reading.yaml", "objects.yaml")
	e.eventually("the pod goes, with what it had there", func(context.Context) error {
		left, err := os.ReadDir(pods)
		if len(left) > 0 {
			err = fmt.Errorf("%s is there", left[0].Name())
		}
		return err
	})
}

// TestASubPathOfAHostPathThatVanishesIsNamed, and the container starts when it is
// there again.
func TestASubPathOfAHostPathThatVanishesIsNamed(t *testing.T) {
	e := begin(t)
	data := filepath.Join(e.podd.Dir, "data")
	if err := os.MkdirAll(data+"/part", 0o755); err != nil {
		t.Fatal(err)
	}
	text := e.podOf("vanishing", "echo x >> /out/vanishing.starts; [ -e /out/stay ] || exit 0; ${REST}") + "  - name: data\n    hostPath: {path: " + data + "}\n"
	text = replaced(e, text, "metadata:\n", "metadata:\n  annotations: {podd/restart-backoff-success: 100ms}\n")
	e.write("vanishing.yaml", replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data, subPath: part}]"))
	e.mark("vanishing.starts")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	e.waiting("vanishing", "CreateContainerConfigError")
	e.event("vanishing", "Failed", data, "no such file or directory")
	before := e.starts("vanishing")
	if err := errors.Join(os.WriteFile(e.out+"/stay", nil, 0o644), os.MkdirAll(data, 0o755)); err != nil {
		t.Fatal(err)
	}
	e.waitPod("vanishing", "running again", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].State.Running == nil || e.starts("vanishing") <= before {
			return errors.New(describe(p))
		}
		return nil
	})
}
