package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/cgroup"
	"podd/internal/instance"
)

// place is where a podd was: its directories with some content.
type place struct {
	t    *testing.T
	dir  string
	dirs instance.Dirs
	// bridge and cgroups are names that only this test uses.
	bridge, cgroups string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("podd runtime stop needs root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, dirs: instance.Dirs{Root: dir + "/lib", State: dir + "/run/podd"},
		bridge: fmt.Sprintf("poddc%d", os.Getpid()%100000), cgroups: fmt.Sprintf("/poddstop%d/kubepods", os.Getpid())}
	for _, file := range []string{"lib/images/a.tar", "lib/containerd/db", "lib/ended/u1.json", "lib/accepted/u1.json", "lib/starts/u1.json", "run/podd/containerd/state", "run/podd/s/socket", "run/podd/containerd.toml"} {
		p.write(file)
	}
	return p
}

func (p *place) write(file string) {
	p.t.Helper()
	path := filepath.Join(p.dir, file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// used records what podd run and podd runtime record when they start.
func (p *place) used(endpoint string) *place {
	p.t.Helper()
	err := errors.Join(os.MkdirAll(p.dirs.State, 0o755),
		instance.AcquireRuntime(instance.RuntimeRecord{Dirs: p.dirs, Bridge: p.bridge, PodCIDR: "10.206.0.0/24"}),
		instance.AcquireAgent(instance.AgentRecord{Dirs: p.dirs, Endpoint: endpoint, CgroupRoot: p.cgroups}, p.dirs.Root))
	if err != nil {
		p.t.Fatal(err)
	}
	return p
}

// stop runs podd runtime stop in this process, whose binary is not podd and could not
// start a runtime for orphaned pods.
func (p *place) stop(args ...string) (string, error) {
	p.t.Helper()
	if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(p.dir + "/run")); err != nil || len(left) > 0 {
		p.t.Fatalf("there are mounts for which a runtime would be started: %v, %v", left, err)
	}
	var out strings.Builder
	cmd := newRuntimeStopCmd()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetContext(p.t.Context())
	err := cmd.Execute()
	return out.String(), err
}

func (p *place) there(file string) bool {
	_, err := os.Lstat(filepath.Join(p.dir, file))
	return err == nil
}

// stays and gone check files below the test's directory.
func (p *place) stays(files ...string) {
	p.t.Helper()
	for _, file := range files {
		if !p.there(file) {
			p.t.Errorf("%s is gone", file)
		}
	}
}

func (p *place) gone(files ...string) {
	p.t.Helper()
	for _, file := range files {
		if p.there(file) {
			p.t.Errorf("%s is still there", file)
		}
	}
}

// bind mounts a directory with data over point.
func (p *place) bind(point string) (data string) {
	p.t.Helper()
	p.write("data/precious")
	at := filepath.Join(p.dir, point)
	if err := os.MkdirAll(at, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := unix.Mount(p.dir+"/data", at, "", unix.MS_BIND, ""); err != nil {
		p.t.Skipf("cannot mount here: %v", err)
	}
	p.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return "data/precious"
}

func (p *place) refused(err error, words ...string) {
	p.t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			p.t.Errorf("got %v, want an error with %q", err, w)
		}
	}
}

func TestStopRemovesWhatPoddRecordedAndNoMore(t *testing.T) {
	p := newPlace(t).used("")
	p.write("lib/pods/u1/volumes/kubernetes.io~empty-dir/scratch/file")
	p.write("run/podd/manifests/mine.yaml")
	p.write("run/podd/last-good/manifests/of-a-secret")
	// The runtime rewrites it, and names the directory there.
	out, err := p.stop("--state-dir", p.dirs.State)
	if err != nil || !strings.Contains(out, "manifests in it is not podd's") {
		t.Errorf("got %q, %v", out, err)
	}
	p.gone("lib/pods/u1", "lib/ended", "lib/accepted", "lib/starts", "lib/runtime.json", "lib/agent.json", "run/podd/containerd", "run/podd/s", "run/podd/containerd.toml", "run/podd/runtime.json", "run/podd/last-good")
	p.stays("lib/images/a.tar", "lib/containerd/db", "run/podd/manifests/mine.yaml")
	if _, err := p.stop("--root-dir", p.dirs.Root, "--state-dir", p.dirs.State); err != nil {
		t.Errorf("again: %v", err)
	}
	p.stays("run/podd/manifests/mine.yaml")
}

// As under the name kubelet, whose root directory is not that of podd runtime.
func TestStopRemovesThePodsOfAPoddWithARootDirectoryOfItsOwn(t *testing.T) {
	p := newPlace(t)
	own := instance.Dirs{Root: p.dir + "/kubelet", State: p.dirs.State}
	p.write("kubelet/pods/u1/volumes/kubernetes.io~empty-dir/scratch/file")
	p.write("kubelet/ended/u1.json")
	p.write("kubelet/config.yaml")
	err := errors.Join(instance.AcquireRuntime(instance.RuntimeRecord{Dirs: p.dirs, Bridge: p.bridge}), instance.AcquireAgent(instance.AgentRecord{Dirs: own, CgroupRoot: p.cgroups}, p.dirs.Root))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.stop("--state-dir", p.dirs.State); err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	p.gone("kubelet/pods/u1", "kubelet/ended", "kubelet/agent.json", "lib/agent.json", "lib/runtime.json", "run/podd")
	p.stays("kubelet/config.yaml", "lib/images/a.tar", "lib/containerd/db")
}

// TestStopLeavesDirectoriesOfOthersAlone: a directory without any record of podd's was
// once wiped because of a flag: /run/containerd, a home directory.
func TestStopLeavesDirectoriesOfOthersAlone(t *testing.T) {
	p := newPlace(t).used("")
	p.write("home/file")
	_, err := p.stop("--root-dir", p.dirs.Root, "--state-dir", p.dir+"/home")
	p.refused(err, "not of one podd", p.dirs.State)
	p.write("other/lib/images/b.tar")
	if _, err := p.stop("--root-dir", p.dir+"/other/lib", "--state-dir", p.dir+"/home"); err != nil {
		t.Errorf("nothing of podd's there: got %v, want nothing done", err)
	}
	l, err := net.Listen("unix", p.dir+"/home/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = p.stop("--root-dir", p.dir+"/other/lib", "--state-dir", p.dir+"/home")
	p.refused(err, "not podd's", "nothing was ended")
	p.stays("home/file", "other/lib/images/b.tar", "lib/runtime.json", "run/podd/containerd/state")
}

// TestStopRejectsNestedDirectories: images and archives were in the state directory and
// once were deleted with it.
func TestStopRejectsNestedDirectories(t *testing.T) {
	p := newPlace(t)
	p.write("run/podd/root/images/a.tar")
	for _, dirs := range [][2]string{{"run/podd/root", "run/podd"}, {"lib", "lib/run"}, {"lib", "lib"}} {
		_, err := p.stop("--root-dir", filepath.Join(p.dir, dirs[0]), "--state-dir", filepath.Join(p.dir, dirs[1]))
		p.refused(err, "--root-dir", "--state-dir")
	}
	p.stays("run/podd/root/images/a.tar", "lib/images/a.tar")
}

// TestStopSeesMountsBehindALinkToTheDirectory: the mount table only has /run/podd. For
// /var/run/podd no mounts were found, and the deletion once reached into them.
func TestStopSeesMountsBehindALinkToTheDirectory(t *testing.T) {
	p := newPlace(t)
	// A record of this boot by a runtime that has exited, and released its locks.
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.dirs.Root, p.dirs.State} {
		record := fmt.Sprintf(`{"root": %q, "state": %q, "bridge": %q, "podCIDR": "10.206.0.0/24", "boot": %q}`, p.dirs.Root, p.dirs.State, p.bridge, strings.TrimSpace(string(boot)))
		if err := os.WriteFile(dir+"/runtime.json", []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(p.dir+"/run", p.dir+"/var-run"); err != nil {
		t.Fatal(err)
	}
	precious := p.bind("run/podd/containerd/rootfs")
	// The mount was left by a runtime that was killed; none can be started.
	buildPodd(t, p.dir)
	cmd := exec.Command(p.dir+"/podd", "runtime", "stop", "--root-dir", p.dirs.Root, "--state-dir", p.dir+"/var-run/podd", "--runtime-dir", t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), p.dirs.State+" holds what pods left behind") {
		t.Errorf("got %v, want an error that names the mounts:\n%s", err, out)
	}
	p.stays(precious, "lib/runtime.json")
	// If the mount appears in between, the deletion itself stops there (node/teardown).
}

// TestStopFailsWithTheNameOfAVolumeThatStaysMounted: it is a pending unmount of a podd
// that had exited. Once stop did not mind, and make uninstall said to delete the
// directory, data and all.
func TestStopFailsWithTheNameOfAVolumeThatStaysMounted(t *testing.T) {
	p := newPlace(t).used("")
	precious := p.bind("lib/pods/u1/volumes/kubernetes.io~empty-dir/scratch")
	busy, err := os.Open(p.dirs.Root + "/pods/u1/volumes/kubernetes.io~empty-dir/scratch")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, err = p.stop("--root-dir", p.dirs.Root)
	p.refused(err, `volume "scratch" of pod u1 is kept`, fmt.Sprintf("process %d", os.Getpid()))
	p.stays(precious, "lib/pods/u1", "lib/runtime.json")
	busy.Close()
	if _, err := p.stop("--root-dir", p.dirs.Root); err != nil {
		t.Errorf("once nobody holds it: %v", err)
	}
	p.stays(precious)
	p.gone("lib/pods/u1", "lib/runtime.json")
}

// TestStopLeavesVolumesOfPodsThatMayRun: volumes of pods that another runtime runs were
// once deleted while in use.
func TestStopLeavesVolumesOfPodsThatMayRun(t *testing.T) {
	p := newPlace(t).used("unix:///run/other/containerd.sock")
	p.write("lib/pods/u1/volumes/kubernetes.io~empty-dir/scratch/file")
	_, err := p.stop("--root-dir", p.dirs.Root)
	p.refused(err, "unix:///run/other/containerd.sock")
	p.stays("lib/pods/u1/volumes/kubernetes.io~empty-dir/scratch/file")

	// Whoever created it: a process is in the pod's cgroup.
	p.used("")
	facts, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(facts.Mounts[0], p.cgroups, "besteffort/podu1")
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroups(t, p.cgroups) })
	runs := exec.Command("sleep", "300")
	if err := runs.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = runs.Process.Kill(); _ = runs.Wait() }()
	if err := os.WriteFile(group+"/cgroup.procs", fmt.Append(nil, runs.Process.Pid), 0); err != nil {
		t.Skipf("cannot use %s: %v", group, err)
	}
	_, err = p.stop("--root-dir", p.dirs.Root)
	p.refused(err, "volumes of pod u1 are kept", "a process is still in it")
	p.stays("lib/pods/u1/volumes/kubernetes.io~empty-dir/scratch/file")
	_, _ = runs.Process.Kill(), runs.Wait()
	if _, err := p.stop("--root-dir", p.dirs.Root); err != nil {
		t.Errorf("once it has ended: %v", err)
	}
	p.gone("lib/pods/u1")
}

// TestStopRejectsDirectoriesThatAreInUse: the volumes of the running pods of a podd
// with another state directory were once deleted.
func TestStopRejectsDirectoriesThatAreInUse(t *testing.T) {
	p := newPlace(t)
	p.write("lib/pods/u1/file")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PODD_TEST_HOLD="+p.dirs.Root+":"+p.dirs.State)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, err = p.stop("--root-dir", p.dirs.Root, "--state-dir", p.dir+"/run/other")
	p.refused(err, p.dirs.Root+" is in use", fmt.Sprintf("process %d", cmd.Process.Pid))
	if err := instance.AcquireAgent(instance.AgentRecord{Dirs: p.dirs}, p.dirs.Root); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second podd of one root directory: got %v", err)
	}
	p.stays("lib/pods/u1/file")
}

// holdRoot is the other process of the test above: TestMain runs it.
func holdRoot(dirs string) int {
	root, state, _ := strings.Cut(dirs, ":")
	if err := instance.AcquireAgent(instance.AgentRecord{Dirs: instance.Dirs{Root: root, State: state}}, root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Print("!")
	select {}
}

func TestStopRejectsABridgeThatContradictsTheRecord(t *testing.T) {
	p := newPlace(t).used("")
	_, err := p.stop("--root-dir", p.dirs.Root, "--bridge", "lo")
	p.refused(err, "--bridge lo", "has "+p.bridge)
	p.stays("run/podd/containerd/state")
}
