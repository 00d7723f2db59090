package e2e

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stopAll runs podd runtime stop with these flags.
func (e *env) stopAll(args ...string) (string, error) {
	cmd := exec.CommandContext(e.Context(), e.podd.Binary, append([]string{"runtime", "stop"}, args...)...)
	cmd.Env = append(os.Environ(), e.podd.Env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRuntimeStopDeletesNothingThatIsInUse: it believed its flags. With another
// --state-dir than podd's it found nobody to end, and took the volumes and the
// bridge from under running pods; and it was content with a volume that stayed
// mounted.
func TestRuntimeStopDeletesNothingThatIsInUse(t *testing.T) {
	e := prepare(t)
	// The runtime is podd's own, so that it notes what it makes.
	if err := e.node.Containerd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.start()
	text := replaced(e, e.podOf("one", "echo precious > /scratch/file; : > /out/one; ${REST}"), "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]")
	e.write("one.yaml", text+"  - name: scratch\n    emptyDir: {medium: Memory}\n")
	p := e.ready("one")
	e.mark("one")
	before := e.identities()
	scratch := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/scratch")
	untouched := func(when string) {
		t.Helper()
		if now := e.identities(); !maps.Equal(before, now) {
			t.Errorf("%s: containers %v, want %v", when, now, before)
		}
		if text := e.exec(p, "main", "cat", "/scratch/file"); text != "precious\n" {
			t.Errorf("%s: the volume has %q", when, text)
		}
		for _, file := range []string{scratch + "/file", "/sys/class/net/" + e.node.Bridge, e.node.State() + "/containerd.sock"} {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	elsewhere := filepath.Join(e.podd.Dir, "elsewhere")
	own := []string{"--cgroup-root", e.node.CgroupRoot + "/kubepods"}
	for when, flags := range map[string][]string{
		"another state directory": {"--root-dir", e.node.Root(), "--state-dir", elsewhere, "--bridge", e.node.Bridge, "--pod-cidr", e.node.Subnet.String()},
		"another root directory":  {"--root-dir", elsewhere, "--state-dir", e.node.State(), "--bridge", e.node.Bridge, "--pod-cidr", e.node.Subnet.String()},
		"another bridge":          {"--root-dir", e.node.Root(), "--bridge", "lo"},
		"nested directories":      {"--root-dir", e.node.Root(), "--state-dir", e.node.Dir},
	} {
		if out, err := e.stopAll(append(flags, own...)...); err == nil {
			t.Errorf("podd runtime stop with %s: got\n%s", when, out)
		}
		untouched("after podd runtime stop with " + when)
	}
	second := exec.CommandContext(t.Context(), e.podd.Binary, "run", "--root-dir", e.node.Root(), "--state-dir", elsewhere, "--bridge", e.node.Bridge+"b",
		"--healthz-port", "0", "--read-only-port", "0", "--pod-manifest-path", e.podd.Manifests())
	second.Env = append(os.Environ(), e.podd.Env...)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "is in use") {
		t.Errorf("a second podd with the root directory: %v\n%s", err, out)
	}
	untouched("after a second podd's start")

	held, err := os.Open(scratch)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	e.mayEnd = true
	// The root directory alone says what is meant.
	out, err := e.stopAll("--root-dir", e.node.Root())
	if err == nil || !strings.Contains(out, `volume "scratch" of pod `+string(p.UID)+" is kept") || !strings.Contains(out, "ending 1 pod") {
		t.Errorf("with a volume that is in use: got %v\n%s", err, out)
	}
	if text, err := os.ReadFile(scratch + "/file"); err != nil || string(text) != "precious\n" {
		t.Errorf("the volume that is in use: got %q, %v", text, err)
	}
	_ = held.Close()
	if out, err := e.stopAll("--root-dir", e.node.Root()); err != nil {
		t.Errorf("once nobody holds it: %v\n%s", err, out)
	}
	for _, gone := range []string{filepath.Dir(filepath.Dir(filepath.Dir(scratch))), "/sys/class/net/" + e.node.Bridge, e.node.State(), e.node.Root() + "/runtime.json"} {
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v)", gone, err)
		}
	}
	if _, err := os.Stat(filepath.Join(e.node.Root(), "containerd")); err != nil {
		t.Errorf("the images: %v", err)
	}
	e.start() // what was removed is made again
	e.ready("one")
}

// TestRuntimeStopRunsPreStopHooks: podd stops its pods itself, as if their manifests had
// been removed, and starts none of them while it is being ended; a hook may take as long
// as the grace period.
func TestRuntimeStopRunsPreStopHooks(t *testing.T) {
	e := prepare(t)
	// The runtime is podd's own, so that it records what it creates.
	if err := e.node.Containerd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.start()
	hook := `    lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "sleep 1; : > /out/hook"]}}}` + "\n  volumes:"
	e.write("one.yaml", replaced(e, e.podOf("one", "trap ': > /out/term; exit 0' TERM; while :; do : > /out/life$(ls /out | grep -c term); sleep 0.1; done"), "  volumes:", hook))
	e.write("two.yaml", e.resting("two"))
	e.ready("one")
	e.ready("two")
	e.mayEnd = true
	out, err := e.stopAll("--root-dir", e.node.Root())
	if err != nil || strings.Count(out, "ending 2 pods") != 1 {
		t.Errorf("podd runtime stop: %v\n%s", err, out)
	}
	if !e.marked("hook") || !e.marked("term") || e.marked("life1") {
		t.Errorf("hook has run: %v, told to end: %v, started again: %v; want the hook, then the end, and no start", e.marked("hook"), e.marked("term"), e.marked("life1"))
	}
	e.start()
	e.ready("one")
}
