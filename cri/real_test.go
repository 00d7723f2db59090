package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/cri"
	"podd/cri/spec"
	"podd/internal/pod"
	"podd/podenv"
	"podd/podfs"
)

// realLife is one pod on a real runtime.
type realLife struct {
	*testing.T
	client *cri.Client
	dir    string
	image  *pod.Image
	pod    *v1.Pod
	box    string
	env    *podenv.Resolver
	files  *podfs.Files
	look   *look
	clock  time.Time
}

// TestRealRuntime lives one pod through on a real runtime that the caller
// started, with the test image imported.
func TestRealRuntime(t *testing.T) {
	endpoint := os.Getenv("PODD_TEST_RUNTIME_ENDPOINT")
	if endpoint == "" {
		t.Skip("needs root and a running container runtime: set PODD_TEST_RUNTIME_ENDPOINT=unix:///…/containerd.sock")
	}
	l := &realLife{T: t, dir: t.TempDir(), look: newLook(), pod: talkative()}
	l.env = podenv.New(podenv.Config{
		NodeName: "node-1", NodeIPs: func() []string { return []string{"192.0.2.1"} },
		CgroupParent: func(p *v1.Pod) string { return "/podd-cri-test/besteffort/pod" + string(p.UID) },
	})
	dirs := podfs.Dirs{Root: filepath.Join(l.dir, "root"), PodLogs: filepath.Join(l.dir, "logs"), ContainerLogs: filepath.Join(l.dir, "links")}
	l.files = podfs.New(dirs, quiet)
	l.client = cri.NewClient(connect(t, endpoint, 0, quiet), spec.Options{Dirs: dirs})
	t.Cleanup(func() { removeCgroups("podd-cri-test") })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = l.client.Events(ctx, l.look.event) }()

	l.findImages()
	req := l.runSandbox()
	defer func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(l.client.StopSandbox(ctx, l.box), l.client.RemoveSandbox(ctx, l.box)); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	}()
	id := l.startContainer(req)
	l.exec(id)
	l.update(id)
	l.resizeSandbox(l.box)
	l.reopen(id)
	l.stopContainer(id)
	l.refuseToStart(req)
	l.end(id)
}

// talkative is a pod that says in its log who it is, leaves a message and ends
// with 9 when it is told to.
func talkative() *v1.Pod {
	return aPod("real", func(p *v1.Pod) {
		p.UID = "11111111-2222-3333-4444-" + pod.UID(time.Now().Format("150405.000000")[:6]+"000000")
		p.Spec.Containers[0].Command = []string{"/bin/sh", "-c"}
		p.Spec.Containers[0].Args = []string{`echo "name=$NAME ip=$IP host=$(hostname)"; cat /etc/hosts; echo -n "left: $(NAME)" > /dev/termination-log; trap 'exit 9' TERM; while :; do sleep 0.1; done`}
		p.Spec.Containers[0].Env = []v1.EnvVar{
			{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}},
		}
		p.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"alias.test"}}}
	})
}

// took logs how long it was since the last took, or since clock was set.
func (l *realLife) took(what string) {
	l.Helper()
	l.Logf("%-20s %v", what, time.Since(l.clock).Round(time.Millisecond))
	l.clock = time.Now()
}

func (l *realLife) findImages() {
	var err error
	if l.image, err = l.client.ImageStatus(l.Context(), image); err != nil || l.image == nil {
		l.Fatalf("test image %s: got %v, %v; import build/images/busybox.tar", image, l.image, err)
	}
	if none, err := l.client.ImageStatus(l.Context(), "localhost/podd/none:1"); none != nil || err != nil {
		l.Errorf("an image that is not there: got %v, %v, want nil", none, err)
	}
	if _, err := l.client.PullImage(l.Context(), "127.0.0.1:1/none:1", nil, nil); err == nil {
		l.Error("a pull from nowhere: got no error")
	} else {
		l.Logf("a pull from nowhere: %v", err)
	}
}

// runSandbox makes the sandbox and returns what asks for its container.
func (l *realLife) runSandbox() pod.ContainerRequest {
	in, err := l.env.Sandbox(l.pod)
	if err != nil {
		l.Fatal(err)
	}
	if err := l.files.PreparePod(l.pod, in); err != nil {
		l.Fatal(err)
	}
	l.clock = time.Now()
	l.box, err = l.client.RunSandbox(l.Context(), pod.SandboxRequest{Pod: l.pod, Source: pod.SourceFile, StartTime: time.Unix(1700000000, 5), Inputs: in})
	l.took("RunSandbox")
	if err != nil {
		l.Fatal(err)
	}
	if again, err := l.client.RunSandbox(l.Context(), pod.SandboxRequest{Pod: l.pod, Inputs: in}); err != nil || again != l.box {
		l.Errorf("the same attempt twice: got %s, %v, want the one sandbox", again, err)
	}
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	l.took("Observe")
	if err != nil || len(seen.Sandboxes) != 1 || !seen.Sandboxes[0].Ready || len(seen.Sandboxes[0].IPs) == 0 || !seen.StartTime.Equal(time.Unix(1700000000, 5)) {
		l.Fatalf("observed sandbox: got %+v, %v", seen, err)
	}
	inputs, err := l.env.Container(l.pod, &l.pod.Spec.Containers[0], seen.Sandboxes[0].IPs)
	if err != nil {
		l.Fatal(err)
	}
	return pod.ContainerRequest{
		SandboxInputs: in, Inputs: inputs, Pod: l.pod, Container: &l.pod.Spec.Containers[0], Sandbox: seen.Sandboxes[0], Source: pod.SourceFile, StartTime: seen.StartTime,
		Image: pod.ImageState{Ref: l.image.ID, UID: l.image.UID, Username: l.image.Username},
	}
}

func (l *realLife) startContainer(req pod.ContainerRequest) (id string) {
	req, err := l.files.PrepareContainer(req)
	if err != nil {
		l.Fatal(err)
	}
	l.clock = time.Now()
	id, err = l.client.CreateContainer(l.Context(), req)
	l.took("CreateContainer")
	if err != nil {
		l.Fatal(err)
	}
	if again, err := l.client.CreateContainer(l.Context(), req); err != nil || again != id {
		l.Errorf("the same container again: got %s, %v, want the one that waits to be started", again, err)
	}
	l.clock = time.Now()
	if err := l.client.StartContainer(l.Context(), id); err != nil {
		l.Fatal(err)
	}
	l.took("StartContainer")
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	l.took("Observe")
	if c := seen.LatestContainer("app"); err != nil || c == nil || c.State != pod.ContainerRunning || c.ImageID == "" {
		l.Fatalf("observed container: got %+v, %v", c, err)
	}
	l.files.Link(seen)
	if _, err := l.client.Observe(l.Context(), l.pod.UID); err != nil {
		l.Fatal(err)
	}
	l.took("Observe settled")
	summaries, err := l.client.Summaries(l.Context())
	if err != nil || len(summaries) == 0 {
		l.Errorf("summaries: got %v, %v", summaries, err)
	}
	link := filepath.Join(l.dir, "links", "real_default_app-"+id+".log")
	eventually(l.T, "the log has the container's words", func() bool {
		text, _ := os.ReadFile(link)
		return strings.Contains(string(text), "name=real ip="+req.Sandbox.IPs[0]+" host=real") && strings.Contains(string(text), "192.0.2.9\talias.test")
	})
	return id
}

// exec runs commands that end, fail, flood, hang, and leave somebody behind.
func (l *realLife) exec(id string) {
	run := func(timeout time.Duration, script string) (pod.ExecResult, error) {
		l.clock = time.Now()
		defer l.took("ExecSync")
		return l.client.ExecSync(l.Context(), id, []string{"/bin/sh", "-c", script}, timeout)
	}
	if r, err := run(time.Minute, "echo out; echo err >&2; exit 7"); err != nil || r.ExitCode != 7 || string(r.Output) != "out\nerr\n" {
		l.Errorf("a command that fails: got %d %q, %v", r.ExitCode, r.Output, err)
	}
	if r, err := run(time.Minute, "dd if=/dev/zero bs=1M count=3 2>/dev/null"); err != nil || len(r.Output) != 10<<10 {
		l.Errorf("a command that floods: got %d bytes, %v", len(r.Output), err)
	}
	if r, err := run(time.Minute, "dd if=/dev/zero bs=1M count=40 2>/dev/null"); err == nil {
		l.Errorf("more than a message of the runtime holds: got %d bytes and no error", len(r.Output))
	} else {
		l.Logf("40 MiB of output: %v", err)
	}
	if _, err := l.client.ExecSync(l.Context(), id, []string{"/no/such"}, time.Minute); err == nil || errors.Is(err, pod.ErrTimeout) {
		l.Errorf("a command that is not there: got %v", err)
	} else {
		l.Logf("no such command: %v", err)
	}
	began := time.Now()
	// The shell is killed. What it started lives on in the container, as with any
	// client of containerd's, and must not keep the caller waiting.
	if _, err := run(time.Second, "trap '' TERM INT; echo $$ > /tmp/pid; while :; do sleep 1234; done"); !errors.Is(err, pod.ErrTimeout) || time.Since(began) > 5*time.Second {
		l.Errorf("a command that ignores its timeout: got %v after %v", err, time.Since(began))
	}
	if r, err := run(time.Minute, "kill -0 $(cat /tmp/pid)"); err != nil || r.ExitCode == 0 {
		l.Errorf("the command lives on after its timeout: %d %q, %v", r.ExitCode, r.Output, err)
	}
	began = time.Now()
	_, err := run(time.Second, "sleep 4321 & exit 0")
	l.Logf("a command that leaves a process behind, which holds its output: %v after %v", err, time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 5*time.Second {
		l.Errorf("it took %v", took)
	}
}

// update changes the memory limit of the running container.
func (l *realLife) update(id string) {
	p := l.pod.DeepCopy()
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("77Mi")}
	if err := l.client.UpdateContainer(l.Context(), id, p, &p.Spec.Containers[0]); err != nil {
		l.Error(err)
	}
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	if c := seen.LatestContainer("app"); err != nil || c.Resources == nil || c.Resources.MemoryLimitInBytes != 77<<20 {
		l.Errorf("after the update: got %+v, %v", c, err)
	}
}

// resizeSandbox tells the runtime what the pod has from now on.
func (l *realLife) resizeSandbox(id string) {
	r := pod.ContainerResources{CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryLimitInBytes: 77 << 20}
	if err := l.client.UpdateSandbox(l.Context(), id, l.pod, r); err != nil {
		l.Error(err)
	}
}

// reopen rotates the running container's log.
func (l *realLife) reopen(id string) {
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	if err != nil {
		l.Fatal(err)
	}
	log := seen.LatestContainer("app").LogPath
	if err := os.Rename(log, log+".1"); err != nil {
		l.Fatal(err)
	}
	if err := l.client.ReopenContainerLog(l.Context(), id); err != nil {
		l.Error(err)
	}
	if _, err := os.Stat(log); err != nil {
		l.Errorf("the log is not there again: %v", err)
	}
}

func (l *realLife) stopContainer(id string) {
	l.clock = time.Now()
	if err := l.client.StopContainer(l.Context(), id, 5*time.Second); err != nil {
		l.Error(err)
	}
	l.took("StopContainer")
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	if c := seen.LatestContainer("app"); err != nil || c.State != pod.ContainerExited || c.ExitCode != 9 || c.Reason != "Error" || c.Message != "left: real" {
		l.Errorf("stopped container: got %+v, %v", c, err)
	}
}

// refuseToStart starts a container without a program.
func (l *realLife) refuseToStart(req pod.ContainerRequest) {
	bad := *l.pod.Spec.Containers[0].DeepCopy()
	bad.Name, bad.Command = "bad", []string{"/no/such/command"}
	req.Container = &bad
	req, err := l.files.PrepareContainer(req)
	if err != nil {
		l.Fatal(err)
	}
	id, err := l.client.CreateContainer(l.Context(), req)
	if err != nil {
		l.Fatal(err)
	}
	err = l.client.StartContainer(l.Context(), id)
	l.Logf("no such command: %v", err)
	if pod.ReasonOf(err, "") != "RunContainerError" {
		l.Errorf("no such command: got %v", err)
	}
	seen, err := l.client.Observe(l.Context(), l.pod.UID)
	if c := seen.LatestContainer("bad"); err != nil || c.State != pod.ContainerExited || c.Reason != "StartError" {
		l.Errorf("no such command: got %+v, %v", c, err)
	}
}

func (l *realLife) end(id string) {
	l.clock = time.Now()
	ctx := l.Context()
	if err := errors.Join(l.client.StopSandbox(ctx, l.box), l.client.RemoveContainer(ctx, id), l.client.RemoveSandbox(ctx, l.box), l.files.RemoveLogs(l.pod)); err != nil {
		l.Error(err)
	}
	l.took("stop and remove")
	if seen, err := l.client.Observe(ctx, l.pod.UID); err != nil || !seen.Empty() {
		l.Errorf("after the end: got %+v, %v", seen, err)
	}
	eventually(l.T, "an event of the pod's", func() bool { return l.look.of(l.pod.UID) >= 6 })
	l.Logf("events: %d of the pod, %d of nobody", l.look.of(l.pod.UID), l.look.of(""))
}

// removeCgroups takes away what the runtime left of the test's cgroup parent.
func removeCgroups(name string) {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	dirs = append(dirs, "/sys/fs/cgroup/"+name)
	for _, d := range dirs {
		var all []string
		_ = filepath.WalkDir(d, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, p)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			_ = os.Remove(all[i])
		}
	}
}
