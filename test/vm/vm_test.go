package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// checksInstalled are the first of each machine with cgroup v2, which most people have. The
// guest must report each check of its machine as ok once. One that is missing has failed.
var checksInstalled = []string{
	"machine-has-systemd-and-cgroup-v2",
	"install-puts-files-in-place",
	"install-keeps-an-existing-configuration",
	"runtime-unit-starts",
	"agent-unit-starts",
	"manifest-dropped-into-the-directory-runs",
}

// checksLimits are of what the kernel holds pods to.
var checksLimits = []string{
	"pod-address-answers",
	"cgroups-are-made-by-systemd",
	"all-pods-leave-what-is-reserved",
	"readings-of-cgroups-tell-what-is-true-now",
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
	"memory-that-pods-request-is-protected-up-to-the-root",
	"memory-is-no-longer-protected-once-that-is-switched-off",
	"project-quota-measures-an-emptydir",
	"uninstall-leaves-nothing-running",
}

// checksLife are of what restarts, reboots and the removal of podd do to pods.
var checksLife = []string{
	"init-containers-and-sidecars-start-in-order",
	"a-removed-pod-ends-in-order",
	"restart-of-podd-flaps-no-readiness",
	"the-journal-finds-what-is-about-a-pod",
	"events-of-a-pod-are-there",
	"restart-of-podd-leaves-containers-alone",
	"restart-of-the-runtime-keeps-pods",
	"killed-podd-comes-back-and-containers-stay",
	"killed-runtime-comes-back-and-containers-stay",
	"watchdog-restarts-a-podd-that-stands-still",
	"pods-end-and-wait-before-the-reboot",
	"pods-run-again-after-a-shutdown-that-was-called-off",
	"a-job-runs-before-the-reboot",
	"units-start-at-boot",
	"reboot-ends-pods-in-order",
	"reboot-runs-a-job-again-that-had-not-ended",
	"reboot-brings-every-pod-back",
	"reboot-forgets-back-off",
	"reboot-runs-init-containers-again",
	"reboot-leaves-ended-pods-ended",
	"reboot-leaks-nothing",
	"reboot-keeps-events",
	"power-cut-brings-every-pod-back",
	"power-cut-leaves-ended-pods-ended",
	"power-cut-leaks-nothing",
	"power-cut-keeps-events",
	"uninstall-leaves-nothing-running",
	"uninstall-ends-pods-in-order",
	"uninstall-leaves-data-and-says-so",
}

// checksV1 are those of a machine with cgroup v1. It has least to do, and so it has some
// that go without cgroups, too: of volumes, and of a clock that is set.
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
	"pods-wait-while-the-clock-is-right",
	"clock-set-back-moves-no-wait",
	"clock-set-forward-moves-no-wait",
	"pods-end-after-the-clock-was-set",
	"an-exit-after-a-small-step-back-is-heard",
	"uninstall-leaves-nothing-running",
}

func TestVMLimits(t *testing.T) {
	test(t, "limits", "hugepages=8", slices.Concat(checksInstalled, checksLimits))
}

func TestVMLife(t *testing.T) {
	test(t, "life", "", slices.Concat(checksInstalled, checksLife))
}

// TestVMCgroupV1 is of what Debian boots when it is asked for cgroup v1: its
// hierarchies, and one of v2 beside them that has no controllers.
func TestVMCgroupV1(t *testing.T) {
	test(t, "v1", "hugepages=8 systemd.unified_cgroup_hierarchy=0", checksV1)
}

// TestVMSELinux is of a kernel with SELinux, permissive, alone: for who changes what goes by
// it. Debian's policy is Debian's own, and the other machines have AppArmor.
func TestVMSELinux(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "selinux" {
		t.Skip("PODD_TEST_VM=selinux go test -run TestVMSELinux ./test/vm")
	}
	test(t, "selinux", "security=selinux selinux=1 enforcing=0", []string{
		"machine-has-systemd-and-selinux", "install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts",
		"files-in-memory-have-the-pods-selinux-label", "files-of-a-pod-that-wants-them-relabelled-are-mounted-without",
	})
}

// checksVolumes are those of volumes that need more than most machines have.
var checksVolumes = []string{
	"nfs-volume-is-mounted-and-unmounted",
	"dead-nfs-server-holds-up-its-own-pods-alone",
	"project-quotas-of-xfs-count",
	"project-quota-measures-an-emptydir",
}

// TestVMVolumes has these alone, for who changes them; the machines that always run have them, too.
func TestVMVolumes(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "volumes" {
		t.Skip("PODD_TEST_VM=volumes go test -run TestVMVolumes ./test/vm")
	}
	first := []string{"machine-has-systemd-and-cgroup-v2", "install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts"}
	test(t, "volumes", "", append(first, checksVolumes...))
}

// TestVMMemory has those of MemoryQoS alone, for who changes it; the machine of TestVMLimits
// has them, too.
func TestVMMemory(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "memory" {
		t.Skip("PODD_TEST_VM=memory go test -run TestVMMemory ./test/vm")
	}
	test(t, "memory", "", []string{
		"machine-has-systemd-and-cgroup-v2", "install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts", "manifest-dropped-into-the-directory-runs",
		"memory-that-pods-request-is-protected-up-to-the-root", "memory-is-no-longer-protected-once-that-is-switched-off",
	})
}

// TestVMClock has those of a clock that is set alone, for who changes what goes by it; the
// machine of TestVMCgroupV1 has them, too.
func TestVMClock(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "clock" {
		t.Skip("PODD_TEST_VM=clock go test -run TestVMClock ./test/vm")
	}
	test(t, "clock", "", []string{
		"install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts",
		"pods-wait-while-the-clock-is-right", "clock-set-back-moves-no-wait", "clock-set-forward-moves-no-wait", "pods-end-after-the-clock-was-set", "an-exit-after-a-small-step-back-is-heard",
	})
}

// TestVMPackages has the package of build/packages installed, upgraded, removed and purged, as a
// person does it.
func TestVMPackages(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "packages" {
		t.Skip("make test-packages")
	}
	test(t, "packages", "", []string{
		"machine-has-systemd-and-cgroup-v2", "a-package-beside-a-kubelet-starts-nothing", "a-package-installs-and-starts", "the-first-pod-of-a-package-runs",
		"prometheus-of-debian-scrapes-podd", "a-package-goes-over-a-clone", "an-upgrade-ends-no-container", "a-downgrade-ends-no-container",
		"a-removed-package-ends-pods-and-leaves-data", "a-package-over-old-data-runs-its-pods", "a-purged-package-leaves-nothing",
	})
}

// TestVMDatabase reboots a machine in every way, with a database that is written to.
func TestVMDatabase(t *testing.T) {
	if os.Getenv("PODD_TEST_VM") != "database" {
		t.Skip("make test-database")
	}
	test(t, "database", "", []string{
		"machine-has-systemd-and-cgroup-v2", "install-puts-files-in-place", "runtime-unit-starts", "agent-unit-starts",
		"a-database-runs", "it-is-written-to-before-reboot", "nothing-is-lost-by-reboot", "it-is-written-to-before-ctrl-alt-del", "nothing-is-lost-by-ctrl-alt-del",
		"it-is-written-to-before-a-reboot-without-d-bus", "nothing-is-lost-by-a-reboot-without-d-bus",
	})
}

// test boots a machine of that name and expects the checks.
func test(t *testing.T, name, kernel string, checks []string) {
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
		console: filepath.Join(logDir(t, repo), "console-"+name+".log"),
		name:    name,
		kernel:  "podd.test=" + name + " " + kernel,
		memory:  1536,
	}
	if err := os.Remove(m.console); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if available(t) >= 8<<30 { // each of the three takes up to 2.6 GiB: its memory, and one for translated code
		t.Parallel() // while one waits the others have the processors
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
		lines := 150
		if !results.finished {
			lines = 500 // with what its kernel was asked
		}
		t.Errorf("finished: %v; the end of the console (all of it: %s):\n%s", results.finished, m.console, tail(m.console, lines))
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

// made is the second disk, which all machines read: the tree that `make install` needs, the
// test image, and the guest's script.
var made struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.dir != "" {
		_ = os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// payload returns the second disk's file.
func payload(t *testing.T, repo string) string {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "podd-vm"); made.err == nil {
			made.err = makePayload(repo, filepath.Join(made.dir, "payload"))
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	return filepath.Join(made.dir, "payload.img")
}

// makePayload makes the directory tree, and of it tree.img.
func makePayload(repo, tree string) error {
	const script = `set -eu
mkdir -p "$tree/src/build/runtime" "$tree/src/build/images"
cp -a Makefile Makefile.d systemd hack config docs examples README.md CONTRIBUTING.md LICENSE "$tree/src/"
cp -a --parents internal/versions/versions.env "$tree/src/"
cp -a build/podd "$tree/src/build/"
cp -a build/runtime/bin "$tree/src/build/runtime/"
cp -a build/images/pause.tar build/images/web.tar "$tree/src/build/images/"
cp -a build/images/busybox.tar test/vm/guest/*.sh test/vm/guest/apparmor-profile test/vm/guest/manifests "$tree/"
[ "${PODD_TEST_VM:-}" != database ] || cp "$PODD_TEST_EXAMPLE_IMAGES/postgres.tar" examples/postgres.yaml "$tree/"
[ "${PODD_TEST_VM:-}" != packages ] || { mkdir "$tree/packages" && cp build/packages/podd_*_amd64.deb "$tree/packages/"; }
CGO_ENABLED=0 ${GO:-go} test -c -o "$tree/quota.test" ./volumes/quota
CGO_ENABLED=0 ${GO:-go} test -c -o "$tree/kernel.test" ./stats/kernel
size=$(du -sk "$tree" | cut -f1)
PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -L payload -O ^has_journal -d "$tree" "$tree.img" "$((size * 11 / 10 + 16384))k" >/dev/null`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "tree="+tree)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the payload (make build runtime first): %w\n%s", err, out)
	}
	return nil
}
