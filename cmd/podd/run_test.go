package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/cgroup"
	"podd/config"
	"podd/cri/critest"
	"podd/internal/instance"
	"podd/internal/perftest"
	"podd/node"
)

const (
	testImage = "localhost/podd/busybox:1"
	callTakes = 5 * time.Millisecond // as on a real runtime
)

// daemon is a podd run in a process of its own, on an in-memory runtime.
type daemon struct {
	t    *testing.T
	srv  *critest.Server
	dir  string // contains everything of it
	http string // the read-only port
	cmd  *exec.Cmd
	// kubelet: it is started under this name, instead of podd run.
	kubelet bool
	// through is a command line that executes podd's, which is appended.
	through []string
	// attr, if set, is how the process is started.
	attr *syscall.SysProcAttr
	log  *bytes.Buffer // read it only once the process has exited
	done chan struct{}
}

// buildPodd builds the binary as it is shipped, without the race detector, or uses
// the one that PODD_TEST_BINARY names, which make test has just built.
func buildPodd(t *testing.T, dir string) {
	t.Helper()
	if built := os.Getenv("PODD_TEST_BINARY"); built != "" {
		if out, err := exec.Command("cp", built, dir+"/podd").CombinedOutput(); err != nil {
			t.Fatalf("take podd from %s: %v\n%s", built, err, out)
		}
		return
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "podd"), ".").CombinedOutput(); err != nil {
		t.Fatalf("build podd: %v\n%s", err, out)
	}
}

// newDaemon prepares a runtime whose calls take that long, and podd's configuration.
func newDaemon(t *testing.T, call time.Duration) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("podd run needs root")
	}
	dir, err := os.MkdirTemp("", "poddrun") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &daemon{t: t, srv: critest.New(t), dir: dir}
	d.srv.AddImage(testImage)
	for _, c := range []string{"RunPodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus",
		"ListContainers", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox", "StopContainer", "ImageStatus"} {
		d.srv.Delay(c, call)
	}
	buildPodd(t, dir)
	if err := os.Mkdir(d.manifests(), 0o755); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	root := fmt.Sprintf("/poddtest%d-%d", os.Getpid(), port)
	t.Cleanup(func() { removeCgroups(t, root+"/kubepods") })
	d.http = fmt.Sprintf("http://127.0.0.1:%d", port)
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %s
staticPodPath: %s
podLogsDir: %s
cgroupRoot: %s
maxPods: 1000
address: 127.0.0.1
readOnlyPort: %d
healthzPort: 0
evictionHard: {memory.available: "1", nodefs.available: "1", imagefs.available: "1", pid.available: "1"} # this machine may be full
`, d.srv.Endpoint(), d.manifests(), filepath.Join(dir, "logs"), root, port)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// removeCgroups removes the cgroups above the pods', which podd keeps when it stops.
func removeCgroups(t *testing.T, root string) {
	facts, err := cgroup.Detect()
	if err == nil {
		err = cgroup.NewTree(facts, cgroup.Cgroupfs, root, cgroup.Settings{}).RemoveRoot(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}

func (d *daemon) manifests() string { return filepath.Join(d.dir, "manifests") }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (d *daemon) start() {
	d.t.Helper()
	d.log, d.done = &bytes.Buffer{}, make(chan struct{})
	program := []string{"podd", "run"}
	if d.kubelet {
		program = []string{"kubelet", "--runonce", "--feature-gates=CPUManagerPolicyAlphaOptions=true"} // which podd does not have
		if err := os.Symlink("podd", filepath.Join(d.dir, "kubelet")); err != nil {
			d.t.Fatal(err)
		}
	}
	d.cmd = exec.Command(filepath.Join(d.dir, program[0]), append(program[1:], "--config", filepath.Join(d.dir, "config.yaml"),
		"--root-dir", filepath.Join(d.dir, "root"), "--state-dir", filepath.Join(d.dir, "state"),
		"--container-logs-dir", filepath.Join(d.dir, "links"), "--hostname-override", "n")...)
	if len(d.through) > 0 {
		d.cmd = exec.Command(d.through[0], append(d.through[1:], d.cmd.Args...)...)
	}
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.SysProcAttr = d.log, d.log, d.attr
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	cmd, done := d.cmd, d.done
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if d.t.Failed() {
			log := d.log.String()
			d.t.Log(log[max(0, len(log)-4000):])
		}
	})
}

// stop sends SIGTERM, waits for the exit and returns the log.
func (d *daemon) stop() (log string) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(patience):
		d.t.Fatal("podd does not stop")
	}
	return d.log.String()
}

func (d *daemon) pods() []v1.Pod {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.http+"/pods", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil // not listening yet
	}
	defer resp.Body.Close()
	var list v1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		d.t.Fatal(err)
	}
	return list.Items
}

func (d *daemon) running() int {
	n := 0
	for _, p := range d.pods() {
		if p.Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// patience is the timeout of every wait: only a hang takes that long.
const patience = 5 * time.Minute

func (d *daemon) await(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// write creates the manifest of a pod with one container.
func (d *daemon) write(name string) {
	d.t.Helper()
	d.put(name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  dnsPolicy: Default
  containers: [{name: %s, image: %q}]
`, name, name, testImage))
}

// put creates a manifest atomically, by rename.
func (d *daemon) put(name, text string) {
	d.t.Helper()
	half := filepath.Join(d.dir, "half")
	if err := os.WriteFile(half, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(half, filepath.Join(d.manifests(), name+".yaml")); err != nil {
		d.t.Fatal(err)
	}
}

// settle waits until the runtime has had no calls for that long.
func (d *daemon) settle(quiet time.Duration) {
	d.t.Helper()
	last, since := -1, time.Now()
	d.await("the runtime has no calls", func() bool {
		if n := d.srv.Count(""); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// TestThreeHundredPodsInADirectory runs the real binary on a runtime whose calls
// take 5 ms each, and beside it one without pods. PODD_IDLE=5m observes them for
// that long.
func TestThreeHundredPodsInADirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	t.Parallel()
	const many = 300
	d, none := newDaemon(t, callTakes), newDaemon(t, callTakes)
	for i := range many {
		d.write(fmt.Sprintf("p%d", i))
	}
	d.start()
	none.start()
	began := time.Now()
	d.await("all pods are Running", func() bool { return d.running() == many })
	t.Logf("%d pods Running after %v", many, time.Since(began).Round(10*time.Millisecond))

	t.Run("cost little more than none while nothing happens", func(t *testing.T) { idle(t, d, none) })
	t.Run("one crash is handled without a wait", d.crashes)
	log := d.stop()
	if n := len(d.srv.RunningContainers()); n != many {
		t.Errorf("%d containers run after podd has stopped, want %d", n, many)
	}
	lines := strings.Count(log, "\n")
	if lines > 2*many+100 {
		t.Errorf("%d lines of log for %d pods, want two a pod at most", lines, many)
	}
}

// idle compares a podd with many pods with one that has none, both left alone for
// the same minute: what it uses in addition is less than a tenth of what it used to
// start those pods. One sync of each pod every ten seconds would use as much.
func idle(t *testing.T, d, none *daemon) {
	window := time.Minute
	if s := os.Getenv("PODD_IDLE"); s != "" {
		var err error
		if window, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	d.settle(3 * time.Second)
	none.settle(3 * time.Second)
	calls, base := d.srv.Count(""), none.srv.Count("")
	start := processor(t, d.cmd.Process.Pid)
	used, least := start, processor(t, none.cmd.Process.Pid)
	time.Sleep(window)
	used, least = processor(t, d.cmd.Process.Pid)-used, processor(t, none.cmd.Process.Pid)-least
	calls, base = d.srv.Count("")-calls, none.srv.Count("")-base
	share := (used - least).Minutes() / window.Minutes() / start.Minutes()
	t.Logf("idle %v: %v of processor time and %d runtime calls, without pods %v and %d; %v to start them all", window, used, calls, least, base, start)
	if share > 0.1 {
		t.Errorf("an idle minute costs %.2f of what the start of these pods did, want a tenth at most", share)
	}
	// Relists are due now and then, for both and at different times; syncs of pods
	// would be hundreds of calls.
	if most := 10 * (1 + int(window/time.Minute)); calls-base > most {
		t.Errorf("%d runtime calls, and %d without pods: idle pods are synced", calls, base)
	}
}

// crashes checks that from a container's exit to its successor's start it takes no
// longer than the calls in between, apart from podd's own work. The control is a
// client that makes as many calls and does nothing else.
func (d *daemon) crashes(t *testing.T) {
	const most = 8
	calls := 0
	d.crash("p1", &calls) // the first one fills the caches
	next := 0
	got := perftest.Compare(9, 2, func() time.Duration {
		next += 30
		return d.crash(fmt.Sprintf("p%d", next), &calls)
	}, func() time.Duration { return d.srv.Bare(calls) })
	t.Logf("from a container's exit to its successor's start, %d calls: %v", calls, got)
	if calls > most {
		t.Errorf("a crash takes %d calls, want %d at most", calls, most)
	}
	if r := got.Ratio(); r > 2 {
		t.Errorf("a crash takes %.2f times as long as its calls: something waits", r)
	}
}

// crash makes a container exit and returns how long it took until its successor ran,
// by the runtime's clock, and how many calls were made until then.
func (d *daemon) crash(name string, calls *int) time.Duration {
	d.t.Helper()
	d.settle(200 * time.Millisecond)
	d.srv.ResetCalls()
	began := time.Now()
	d.srv.Exit(name, 1)
	var started time.Time
	d.await(name+" is restarted", func() bool {
		for _, c := range d.srv.RunningContainers() {
			if c.Name == name && c.Started.After(began) {
				started = c.Started
			}
		}
		return !started.IsZero()
	})
	*calls = 0
	for _, c := range d.srv.Calls() {
		if c.At.Before(started) {
			*calls++
		}
	}
	return started.Sub(began)
}

// TestRunClearsWhatARebootLeft: the runtime's state is gone, what is on disk is not.
func TestRunClearsWhatARebootLeft(t *testing.T) {
	d := newDaemon(t, 0)
	left := filepath.Join(d.dir, "root", "pods", "0c9a7a6e-left")
	mounted := filepath.Join(left, "volumes", "kubernetes.io~empty-dir", "tmp")
	if err := os.MkdirAll(mounted, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("this machine does not permit mounts: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(mounted, "data"), []byte("of an orphaned pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write("web")
	d.start()
	d.await("the orphaned pod is cleaned up", func() bool {
		_, err := os.Lstat(left)
		return os.IsNotExist(err)
	})
	d.await("the desired pod runs", func() bool { return d.running() == 1 })
	d.stop()
}

// TestStopDoesNotWaitForACreateThatHangs: the next start of podd finds what the
// runtime creates. That podd waits for five seconds is tested in simulated time
// (agent's TestStopIsQuickWhateverPodsDo).
func TestStopDoesNotWaitForACreateThatHangs(t *testing.T) {
	d := newDaemon(t, 0)
	release := d.srv.Hang("RunPodSandbox")
	d.write("web")
	d.start()
	d.await("the sandbox is being made", func() bool { return d.srv.Count("RunPodSandbox") == 1 })
	d.stop() // although the create never returns
	release()
	d.start()
	d.await("the pod runs", func() bool { return d.running() == 1 })
	if n := len(d.srv.Sandboxes()); n != 1 {
		t.Errorf("%d sandboxes, want the one", n)
	}
	d.stop()
}

func TestTheRuntimesRootDirectoryIsPoddsButNotTheKubelets(t *testing.T) {
	for _, tc := range []struct {
		given, root string
		asKubelet   bool
		want        string // or the flag that the error names
	}{
		{"", "/srv/podd2", false, "/srv/podd2"},
		{"", config.KubeletRootDir, false, config.KubeletRootDir},
		{"", "/srv/podd2", true, "/srv/podd2"}, // another podd on the same machine
		{"", config.KubeletRootDir, true, instance.DefaultRootDir},
		{"/srv/runtime", "/srv/podd2", false, "/srv/runtime"},
		{"/srv/runtime", config.KubeletRootDir, true, "/srv/runtime"},
		{"runtime", "/srv/podd2", false, "--runtime-root-dir"},
		{"/srv/state/runtime", "/srv/podd2", false, "--runtime-root-dir"},
		{"/srv/runtime", "/srv/state/podd2", false, "--root-dir"},
	} {
		cfg, own := &config.Config{RootDir: tc.root, StateDir: "/srv/state"}, &node.Config{RuntimeRootDir: tc.given}
		err := resolveDirs(cfg, own, tc.asKubelet)
		got := own.RuntimeRootDir
		if err != nil {
			got = strings.Fields(err.Error())[0]
		}
		if got != tc.want {
			t.Errorf("%+v: got %q, %v", tc, got, err)
		}
	}
}
