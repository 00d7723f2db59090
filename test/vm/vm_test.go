package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// checks are what the guest must report as ok on the machine that most have, each
// once. One that is missing has failed.
var checks = []string{
	"machine-has-systemd-and-cgroup-v2",
	"install-puts-files-in-place",
	"install-keeps-an-existing-configuration",
	"runtime-unit-starts",
	"agent-unit-starts",
	"manifest-dropped-into-the-directory-runs",
	"pod-address-answers",
	"cgroups-are-made-by-systemd",
	"all-pods-leave-what-is-reserved",
	"prometheus-of-debian-scrapes-podd",
	"pod-and-container-have-their-limits",
	"oom-scores-follow-the-class",
	"a-container-that-eats-its-memory-dies-whole",
	"a-pods-own-limit-holds-all-its-containers",
	"apparmor-profiles-are-applied",
	"an-unknown-apparmor-profile-is-named",
	"root-in-a-user-namespace-is-nobody-outside",
	"what-this-kernel-cannot-map-is-named",
	"logs-are-rotated-by-the-packaged-configuration",
	"nobody-swaps",
	"huge-pages-are-given-and-bounded",
	"what-the-machine-lacks-of-huge-pages-is-said",
	"huge-pages-of-a-pod-that-ended-go-to-one-that-was-refused",
	"restart-of-podd-sees-more-huge-pages",
	"systemd-forgets-the-slices-of-pods-that-ended",
	"init-containers-and-sidecars-start-in-order",
	"a-removed-pod-ends-in-order",
	"restart-of-podd-flaps-no-readiness",
	"restart-of-podd-leaves-containers-alone",
	"restart-of-the-runtime-keeps-pods",
	"killed-podd-comes-back-and-containers-stay",
	"killed-runtime-comes-back-and-containers-stay",
	"watchdog-restarts-a-podd-that-stands-still",
	"pods-end-and-wait-before-the-reboot",
	"units-start-at-boot",
	"reboot-brings-every-pod-back",
	"reboot-forgets-back-off",
	"reboot-runs-init-containers-again",
	"reboot-leaves-ended-pods-ended",
	"reboot-leaks-nothing",
	"power-cut-brings-every-pod-back",
	"power-cut-leaves-ended-pods-ended",
	"power-cut-leaks-nothing",
	"uninstall-leaves-nothing-running",
	"uninstall-ends-pods-in-order",
	"uninstall-leaves-data-and-says-so",
}

// checksV1 are those of a machine with cgroup v1.
var checksV1 = []string{
	"machine-has-systemd-and-cgroup-v1",
	"install-puts-files-in-place",
	"install-keeps-an-existing-configuration",
	"runtime-unit-starts",
	"agent-unit-starts",
	"podd-says-that-cgroup-v1-is-no-failure",
	"manifest-dropped-into-the-directory-runs",
	"pod-address-answers",
	"cgroups-are-made-by-podd-and-runc",
	"a-container-that-eats-its-memory-is-oomkilled",
	"restart-of-podd-leaves-containers-alone",
	"restart-of-the-runtime-keeps-pods",
	"a-removed-pod-leaves-no-cgroup",
	"a-runtime-that-was-told-to-use-systemd-starts",
	"cgroups-are-made-by-systemd",
	"slices-keep-their-limits-when-systemd-reloads",
	"huge-pages-are-given-and-bounded",
	"a-container-of-systemds-that-eats-its-memory-is-killed",
	"restarts-leave-containers-of-systemds-alone",
	"systemd-forgets-the-slices-of-pods-that-ended",
	"uninstall-leaves-nothing-running",
	"uninstall-leaves-data-and-says-so",
}

func TestVM(t *testing.T) {
	test(t, "console.log", "hugepages=8", checks, 18*time.Minute)
}

// TestVMCgroupV1 is of what Debian boots when it is asked for cgroup v1: its
// hierarchies, and one of v2 beside them that has no controllers.
func TestVMCgroupV1(t *testing.T) {
	test(t, "console-v1.log", "hugepages=8 systemd.unified_cgroup_hierarchy=0 podd.test=v1", checksV1, 9*time.Minute)
}

// test boots a machine and expects the checks. The timeout is for all of it, about
// five times what it takes on two quiet cores.
func test(t *testing.T, console, kernel string, checks []string, timeout time.Duration) {
	if os.Getenv("PODD_TEST_VM") == "" {
		t.Skip("boots a virtual machine for some minutes: run it with make test-vm")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := machine{
		image:   image(t),
		payload: payload(t, repo),
		console: filepath.Join(logDir(t, repo), console),
		kernel:  kernel,
		memory:  1536,
		timeout: timeout,
	}
	results := m.run(t)
	for _, name := range checks {
		t.Run(name, func(t *testing.T) {
			r, ran := results.of[name]
			switch {
			case !ran:
				t.Errorf("the machine never reported it")
			case !r.ok:
				t.Errorf("%s", r.text)
			default:
				t.Log(r.text)
			}
			delete(results.of, name)
		})
	}
	for name, r := range results.of {
		t.Errorf("the machine reported a check that nobody expects: %s %s", name, r.text)
	}
	if t.Failed() || !results.finished {
		t.Errorf("finished: %v; the end of the console (all of it: %s):\n%s", results.finished, m.console, tail(m.console, 150))
	}
}

// logDir keeps the console after the test, for CI to show.
func logDir(t *testing.T, repo string) string {
	t.Helper()
	dir := filepath.Join(repo, "build/test-vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// image builds or finds the machine's image and returns its folder.
func image(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./image.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the machine's image: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// payload makes the second disk: the tree that `make install` needs, the test
// image, and the guest's script.
func payload(t *testing.T, repo string) string {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "payload")
	script := `set -eu
mkdir -p "$tree/src/build/runtime" "$tree/src/build/images"
cp -a Makefile Makefile.d systemd hack config README.md "$tree/src/"
cp -a build/podd "$tree/src/build/"
cp -a build/runtime/bin "$tree/src/build/runtime/"
cp -a build/images/pause.tar build/images/web.tar "$tree/src/build/images/"
cp -a build/images/busybox.tar test/vm/guest/*.sh test/vm/guest/apparmor-profile test/vm/guest/manifests "$tree/"
size=$(du -sk "$tree" | cut -f1)
PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -L payload -O ^has_journal -d "$tree" "$tree.img" "$((size * 11 / 10 + 16384))k" >/dev/null`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "tree="+tree)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the payload (make build runtime first): %v\n%s", err, out)
	}
	return tree + ".img"
}

type machine struct {
	image, payload, console string
	kernel                  string // further parameters of the kernel
	memory                  int    // MiB
	timeout                 time.Duration
}

type result struct {
	ok   bool
	text string
}

type results struct {
	of       map[string]result
	finished bool // the guest said that it was through
}

// run boots the machine and reads its results until it is off.
func (m machine) run(t *testing.T) results {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), m.timeout, fmt.Errorf("the machine was not through after %v", m.timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(m.memory),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", m.image+"/vmlinuz", "-initrd", m.image+"/initrd.img",
		"-append", "root=/dev/vda rw console=ttyS1 quiet audit=0 mitigations=off panic=1 "+m.kernel,
		// What is written stays with this run: it survives the guest's reboots
		// and goes with qemu.
		"-drive", "file="+m.image+"/root.img,format=raw,if=virtio,snapshot=on,cache=unsafe",
		"-drive", "file="+m.payload+",format=raw,if=virtio,readonly=on",
		"-serial", "stdio", "-serial", "file:"+m.console)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start qemu (apt-get install qemu-system-x86): %v", err)
	}
	got := read(t, out)
	if err := errors.Join(cmd.Wait(), context.Cause(ctx)); err != nil {
		t.Errorf("the machine: %v %s", err, stderr.String())
	}
	return got
}

// read takes the guest's lines: "ok NAME text", "not ok NAME text", "# remark",
// "done".
func read(t *testing.T, r io.Reader) results {
	got := results{of: map[string]result{}}
	start := time.Now()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		t.Logf("%4.0fs %s", time.Since(start).Seconds(), line)
		rest, failed := strings.CutPrefix(line, "not ok ")
		passed := false
		if !failed {
			rest, passed = strings.CutPrefix(line, "ok ")
		}
		if line == "done" {
			got.finished = true
		}
		if !failed && !passed {
			continue
		}
		name, text, _ := strings.Cut(rest, " ")
		if old, twice := got.of[name]; twice {
			passed = false
			text = fmt.Sprintf("reported twice: %q and %q", old.text, text)
		}
		got.of[name] = result{ok: passed, text: text}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("read the machine's results: %v", err)
	}
	return got
}

func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func TestAMissingOrDoubleResultIsAFailure(t *testing.T) {
	got := read(t, strings.NewReader("# hello\nok a 1s\nok b 1s\r\nok b again\nnot ok c it broke\n"))
	if got.finished {
		t.Error("it never said done")
	}
	if !got.of["a"].ok || got.of["b"].ok || got.of["c"].ok || got.of["c"].text != "it broke" || len(got.of) != 3 {
		t.Errorf("got %+v", got.of)
	}
}
