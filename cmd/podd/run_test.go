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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/cgroup"
	"podd/cri/critest"
)

const testImage = "localhost/podd/busybox:1"

// daemon is a podd run of its own process, on a runtime in memory.
type daemon struct {
	t    *testing.T
	srv  *critest.Server
	dir  string // everything of it is below
	http string // the read-only port
	cmd  *exec.Cmd
	log  *bytes.Buffer // read it only once the process has ended
	done chan struct{}
}

// buildPodd builds the binary as it is shipped, without the race detector.
func buildPodd(t *testing.T, dir string) {
	t.Helper()
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
	port, root := freePort(t), fmt.Sprintf("/poddtest%d", os.Getpid())
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
`, d.srv.Endpoint(), d.manifests(), filepath.Join(dir, "logs"), root, port)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// removeCgroups removes what podd keeps over a stop: the groups above the pods'.
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
	d.cmd = exec.Command(filepath.Join(d.dir, "podd"), "run", "--config", filepath.Join(d.dir, "config.yaml"),
		"--root-dir", filepath.Join(d.dir, "root"), "--state-dir", filepath.Join(d.dir, "state"),
		"--container-logs-dir", filepath.Join(d.dir, "links"), "--hostname-override", "n")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
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

// stop sends TERM and says how long the end took, and what was logged.
func (d *daemon) stop() (took time.Duration, log string) {
	d.t.Helper()
	began := time.Now()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(30 * time.Second):
		d.t.Fatal("podd does not stop")
	}
	return time.Since(began), d.log.String()
}

func (d *daemon) pods() []v1.Pod {
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.http+"/pods", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil // not up yet
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

func (d *daemon) await(what string, limit time.Duration, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// write puts a pod of one container in place.
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

// put puts a manifest in place as one should: whole, by rename.
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

// cpu is the processor time of the process so far, to 10 ms.
func (d *daemon) cpu() time.Duration {
	d.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime: fields 14 and 15 of proc(5)
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			d.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
}

// settle waits until the runtime is asked nothing any more for that long.
func (d *daemon) settle(quiet time.Duration) {
	d.t.Helper()
	last, since := -1, time.Now()
	d.await("the runtime is left alone", time.Minute, func() bool {
		if n := d.srv.Count(""); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// TestThreeHundredPodsInADirectory runs the real binary on a runtime whose every
// call takes 5 ms. PODD_IDLE=60s measures the full minute.
func TestThreeHundredPodsInADirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	const many = 300
	d := newDaemon(t, 5*time.Millisecond)
	for i := range many {
		d.write(fmt.Sprintf("p%d", i))
	}
	d.start()
	began := time.Now()
	d.await("all pods are Running", 2*time.Minute, func() bool { return d.running() == many })
	t.Logf("%d pods Running after %v", many, time.Since(began).Round(10*time.Millisecond))

	t.Run("cost nothing while nothing happens", func(t *testing.T) {
		window := 5 * time.Second
		if s := os.Getenv("PODD_IDLE"); s != "" {
			var err error
			if window, err = time.ParseDuration(s); err != nil {
				t.Fatal(err)
			}
		}
		d.settle(3 * time.Second)
		calls, before := d.srv.Count(""), d.cpu()
		if before == 0 {
			t.Fatal("this machine does not account for processor time")
		}
		time.Sleep(window)
		used := d.cpu() - before
		share := float64(used) / float64(window)
		t.Logf("idle %v: %v of processor time (%v before), %.2f %% of a core, %d runtime calls", window, used, before, 100*share, d.srv.Count("")-calls)
		if share > 0.01 {
			t.Errorf("idle: %.2f %% of a core, want less than 1 %%", 100*share)
		}
	})
	t.Run("one crash is answered within 50 ms", func(t *testing.T) {
		var took []time.Duration
		for i := range 9 {
			took = append(took, d.crash(fmt.Sprintf("p%d", 30*i)))
		}
		slices.Sort(took)
		t.Logf("from a container's end to its successor's start: %v", took)
		if median := took[len(took)/2]; median > 50*time.Millisecond {
			t.Errorf("median %v, want less than 50 ms", median)
		}
	})
	took, log := d.stop()
	if took > 2*time.Second {
		t.Errorf("podd took %v to stop with nothing under way", took)
	}
	if n := len(d.srv.RunningContainers()); n != many {
		t.Errorf("%d containers run after podd has stopped, want %d", n, many)
	}
	lines := strings.Count(log, "\n")
	t.Logf("stopped within %v; %d lines of log", took.Round(time.Millisecond), lines)
	if lines > 2*many+100 {
		t.Errorf("%d lines of log for %d pods, want two a pod at most", lines, many)
	}
}

// crash ends a container and says how long it took until its successor ran, by
// the runtime's own clock.
func (d *daemon) crash(name string) time.Duration {
	d.t.Helper()
	d.settle(200 * time.Millisecond)
	began := time.Now()
	d.srv.Exit(name, 1)
	var started time.Time
	d.await(name+" is restarted", 10*time.Second, func() bool {
		for _, c := range d.srv.RunningContainers() {
			if c.Name == name && c.Started.After(began) {
				started = c.Started
			}
		}
		return !started.IsZero()
	})
	return started.Sub(began)
}

// TestRunClearsWhatARebootLeft: the runtime's state is gone, the disk is not.
func TestRunClearsWhatARebootLeft(t *testing.T) {
	d := newDaemon(t, 0)
	left := filepath.Join(d.dir, "root", "pods", "0c9a7a6e-left")
	mounted := filepath.Join(left, "volumes", "kubernetes.io~empty-dir", "tmp")
	if err := os.MkdirAll(mounted, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("this machine lets nobody mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(mounted, "data"), []byte("of a pod long gone"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write("web")
	d.start()
	d.await("the leftover is gone", 10*time.Second, func() bool {
		_, err := os.Lstat(left)
		return os.IsNotExist(err)
	})
	d.await("the wanted pod runs", 10*time.Second, func() bool { return d.running() == 1 })
	if took, _ := d.stop(); took > 2*time.Second {
		t.Errorf("podd took %v to stop with nothing under way", took)
	}
}

// TestStopWaitsForACreateOnlyAMoment: five seconds, and then the runtime keeps
// what comes of it for the next start.
func TestStopWaitsForACreateOnlyAMoment(t *testing.T) {
	d := newDaemon(t, 0)
	release := d.srv.Hang("RunPodSandbox")
	d.write("web")
	d.start()
	d.await("the sandbox is being made", 10*time.Second, func() bool { return d.srv.Count("RunPodSandbox") == 1 })
	if took, _ := d.stop(); took > 7*time.Second {
		t.Errorf("podd took %v to stop, want about 5 s", took)
	}
	release()
	d.start()
	d.await("the pod runs", 20*time.Second, func() bool { return d.running() == 1 })
	if n := len(d.srv.Sandboxes()); n != 1 {
		t.Errorf("%d sandboxes, want the one", n)
	}
	d.stop()
}
