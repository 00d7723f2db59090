package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"project-quota-measures-an-emptydir",
	"init-containers-and-sidecars-start-in-order",
	"a-removed-pod-ends-in-order",
	"restart-of-podd-flaps-no-readiness",
	"restart-of-podd-leaves-containers-alone",
	"restart-of-the-runtime-keeps-pods",
	"killed-podd-comes-back-and-containers-stay",
	"killed-runtime-comes-back-and-containers-stay",
	"watchdog-restarts-a-podd-that-stands-still",
	"pods-wait-while-the-clock-is-right",
	"clock-set-back-moves-no-wait",
	"clock-set-forward-moves-no-wait",
	"an-exit-after-a-small-step-back-is-heard",
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

// checksV1 are those of a machine with cgroup v1, without what has nothing to do
// with cgroups and is said on the other.
var checksV1 = []string{
	"machine-has-systemd-and-cgroup-v1",
	"install-puts-files-in-place",
	"runtime-unit-starts",
	"agent-unit-starts",
	"podd-says-that-cgroup-v1-is-no-failure",
	"manifest-dropped-into-the-directory-runs",
	"cgroups-are-made-by-podd-and-runc",
	"a-container-that-eats-its-memory-is-oomkilled",
	"a-removed-pod-leaves-no-cgroup",
	"a-runtime-that-was-told-to-use-systemd-starts",
	"cgroups-are-made-by-systemd",
	"slices-keep-their-limits-when-systemd-reloads",
	"huge-pages-are-given-and-bounded",
	"a-container-of-systemds-that-eats-its-memory-is-killed",
	"restarts-leave-containers-of-systemds-alone",
	"systemd-forgets-the-slices-of-pods-that-ended",
	"nfs-volume-is-mounted-and-unmounted",
	"dead-nfs-server-holds-up-its-own-pods-alone",
	"project-quotas-of-xfs-count",
	"uninstall-leaves-nothing-running",
}

func TestVM(t *testing.T) {
	test(t, "console.log", "hugepages=8", checks, 150)
}

// TestVMCgroupV1 is of what Debian boots when it is asked for cgroup v1: its
// hierarchies, and one of v2 beside them that has no controllers.
func TestVMCgroupV1(t *testing.T) {
	test(t, "console-v1.log", "hugepages=8 systemd.unified_cgroup_hierarchy=0 podd.test=v1", checksV1, 75)
}

// checksVolumes are those of volumes that need more than most machines have.
var checksVolumes = []string{
	"nfs-volume-is-mounted-and-unmounted",
	"dead-nfs-server-holds-up-its-own-pods-alone",
	"project-quotas-of-xfs-count",
	"project-quota-measures-an-emptydir",
}

// TestVMVolumes has these alone, for who changes them; the two machines have them, too.
func TestVMVolumes(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "volumes" {
		t.Skip("PODD_TEST_VM=volumes go test -run TestVMVolumes ./test/vm")
	}
	first := []string{"machine-has-systemd-and-cgroup-v2", "install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts"}
	test(t, "console-volumes.log", "podd.test=volumes", append(first, checksVolumes...), 75)
}

// test boots a machine and expects the checks. All of it may take so many times as
// long as the machine's slowest boot did, some three times what it takes on two
// quiet cores: how fast a machine emulates is known when it has booted.
func test(t *testing.T, console, kernel string, checks []string, boots int) {
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
		boots:   boots,
	}
	if err := os.Remove(m.console); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if available(t) >= 8<<30 { // each machine takes up to 3 GiB
		t.Parallel() // while one waits the other has the processors
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

// available is the memory that this machine has to give, in bytes.
func available(t *testing.T) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "MemAvailable:")
	if _, err := fmt.Sscanf(line, "%d kB", &bytes); err != nil {
		t.Fatalf("read /proc/meminfo: %v", err)
	}
	return bytes << 10
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
CGO_ENABLED=0 ${GO:-go} test -c -o "$tree/quota.test" ./volumes/quota
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
	boots                   int    // the limit, in times that a boot takes
}

type result struct {
	ok   bool
	text string
}

type results struct {
	of       map[string]result
	finished bool // the guest said that it was through
	reboots  bool // the last that it said is that it boots again
}

// run boots the machine, as often as it says that it boots again, and reads its
// results until it is off.
func (m machine) run(t *testing.T) results {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	began, most := time.Now(), firstBoot
	timer := time.AfterFunc(most, func() {
		cancel(fmt.Errorf("the machine was not through after %v", time.Since(began).Round(time.Second)))
	})
	defer timer.Stop()
	booted := func(up time.Duration) {
		if own := time.Duration(m.boots) * up; own > most || most == firstBoot {
			most = own
			timer.Reset(time.Until(began.Add(most)))
			t.Logf("a boot took %v: the limit is %v", up, most)
		}
	}
	disk := filepath.Join(t.TempDir(), "root.img")
	if out, err := exec.CommandContext(ctx, "cp", "--sparse=always", m.image+"/root.img", disk).CombinedOutput(); err != nil {
		t.Fatalf("copy the machine's disk: %v\n%s", err, out)
	}
	got := results{of: map[string]result{}, reboots: true}
	for got.reboots && ctx.Err() == nil {
		got.reboots = false
		m.boot(ctx, t, disk, &got, booted)
	}
	if err := context.Cause(ctx); err != nil {
		t.Errorf("the machine: %v", err)
	}
	return got
}

// boot runs the machine until it is off or resets itself. Each boot is a process of
// its own: what QEMU has translated of the last one makes the next many times slower,
// since it is dropped page by page.
func (m machine) boot(ctx context.Context, t *testing.T, disk string, got *results, booted func(up time.Duration)) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-no-reboot",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(m.memory),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", m.image+"/vmlinuz", "-initrd", m.image+"/initrd.img",
		// The kernel's test of its timer counts the emulated processor's ticks, and
		// gives up the machine where a busy host emulates too few of them. What lies
		// at another address in each process QEMU translates for each anew. Where a
		// processor stands still the console shows what all of them do.
		"-append", "root=/dev/vda rw console=ttyS1 quiet audit=0 mitigations=off panic=1 "+
			"no_timer_check norandmaps softlockup_all_cpu_backtrace=1 "+m.kernel,
		"-drive", "file="+disk+",format=raw,if=virtio,cache=unsafe",
		"-drive", "file="+m.payload+",format=raw,if=virtio,readonly=on",
		"-serial", "stdio", "-chardev", "file,id=console,append=on,path="+m.console, "-serial", "chardev:console")
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
	read(t, out, got, booted)
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		t.Errorf("the machine: %v %s", err, stderr.String())
	}
}

// firstBoot is how long a machine gets until it says anything at all.
const firstBoot = 30 * time.Minute

// read takes the guest's lines: "ok NAME text", "not ok NAME text", "# remark",
// "# boot STAGE, up SECONDSs", of which it tells booted, "# reboot" and "done".
func read(t *testing.T, r io.Reader, got *results, booted func(up time.Duration)) {
	start := time.Now()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		t.Logf("%4.0fs %s", time.Since(start).Seconds(), line)
		if stage, up, is := strings.Cut(line, ", up "); is && strings.HasPrefix(stage, "# boot ") {
			if d, err := time.ParseDuration(up); err == nil {
				booted(d)
			}
		}
		rest, failed := strings.CutPrefix(line, "not ok ")
		passed := false
		if !failed {
			rest, passed = strings.CutPrefix(line, "ok ")
		}
		got.finished = got.finished || line == "done"
		got.reboots = line == "# reboot" || got.reboots && line == ""
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
	var boots []time.Duration
	got := results{of: map[string]result{}}
	for _, each := range []struct {
		said    string
		reboots bool
	}{
		{"# hello\n# boot first, up 31.50s\nok a 1s\nok b 1s\r\n# reboot\r\n", true},
		{"ok b again\n# boot second, up 8s\r\nnot ok c it broke\n", false},
	} {
		read(t, strings.NewReader(each.said), &got, func(up time.Duration) { boots = append(boots, up) })
		if got.reboots != each.reboots {
			t.Errorf("after %q: reboots is %v", each.said, got.reboots)
		}
	}
	if !slices.Equal(boots, []time.Duration{31500 * time.Millisecond, 8 * time.Second}) {
		t.Errorf("got boots of %v", boots)
	}
	if got.finished {
		t.Error("it never said done")
	}
	if !got.of["a"].ok || got.of["b"].ok || got.of["c"].ok || got.of["c"].text != "it broke" || len(got.of) != 3 {
		t.Errorf("got %+v", got.of)
	}
}
