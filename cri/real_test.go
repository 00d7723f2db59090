package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/cri"
	"podd/internal/pod"
)

// TestRealRuntime lives one pod through on a real runtime that the caller
// started, with the test image imported.
func TestRealRuntime(t *testing.T) {
	endpoint := os.Getenv("PODD_TEST_RUNTIME_ENDPOINT")
	if endpoint == "" {
		t.Skip("needs root and a running container runtime: set PODD_TEST_RUNTIME_ENDPOINT=unix:///…/containerd.sock")
	}
	dir := t.TempDir()
	client, err := cri.Dial(t.Context(), endpoint, cri.Options{
		RootDir: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "logs"), ContainerLogsDir: filepath.Join(dir, "links"),
		NodeName: "node-1", NodeIPs: []string{"192.0.2.1"},
		CgroupParent: func(p *v1.Pod) string { return "/podd-cri-test/besteffort/pod" + string(p.UID) },
	}, quiet, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	t.Cleanup(func() { removeCgroups("podd-cri-test") })
	img, err := client.ImageStatus(t.Context(), image)
	if err != nil || img == nil {
		t.Fatalf("test image %s: got %v, %v; import build/images/busybox.tar", image, img, err)
	}
	if none, err := client.ImageStatus(t.Context(), "localhost/podd/none:1"); none != nil || err != nil {
		t.Errorf("an image that is not there: got %v, %v, want nil", none, err)
	}
	look := newLook()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = client.Events(ctx, look.event) }()

	p := aPod("real", func(p *v1.Pod) {
		p.UID = "11111111-2222-3333-4444-" + pod.UID(time.Now().Format("150405.000000")[:6]+"000000")
		p.Spec.Containers[0].Command = []string{"/bin/sh", "-c"}
		p.Spec.Containers[0].Args = []string{`echo "name=$NAME ip=$IP host=$(hostname)"; cat /etc/hosts; echo -n "left: $(NAME)" > /dev/termination-log; trap 'exit 9' TERM; while :; do sleep 0.1; done`}
		p.Spec.Containers[0].Env = []v1.EnvVar{
			{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}},
		}
		p.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"alias.test"}}}
	})
	clock := time.Now()
	took := func(what string) {
		t.Logf("%-20s %v", what, time.Since(clock).Round(time.Millisecond))
		clock = time.Now()
	}
	box, err := client.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p, Source: pod.SourceFile, StartTime: time.Unix(1700000000, 5)})
	took("RunSandbox")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(client.StopSandbox(ctx, box), client.RemoveSandbox(ctx, box)); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	}()
	if again, err := client.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p}); err != nil || again != box {
		t.Errorf("the same attempt twice: got %s, %v, want the one sandbox", again, err)
	}
	seen, err := client.Observe(t.Context(), p.UID)
	took("Observe")
	if err != nil || len(seen.Sandboxes) != 1 || !seen.Sandboxes[0].Ready || len(seen.Sandboxes[0].IPs) == 0 || !seen.StartTime.Equal(time.Unix(1700000000, 5)) {
		t.Fatalf("observed sandbox: got %+v, %v", seen, err)
	}
	req := pod.ContainerRequest{Pod: p, Container: &p.Spec.Containers[0], Sandbox: seen.Sandboxes[0], Source: pod.SourceFile, StartTime: seen.StartTime, Image: pod.ImageState{Ref: img.ID, UID: img.UID, Username: img.Username}}
	clock = time.Now()
	id, err := client.CreateContainer(t.Context(), req)
	took("CreateContainer")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.CreateContainer(t.Context(), req); err != nil || again != id {
		t.Errorf("the same container again: got %s, %v, want the one that waits to be started", again, err)
	}
	clock = time.Now()
	if err := client.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	took("StartContainer")
	seen, err = client.Observe(t.Context(), p.UID)
	took("Observe")
	if c := seen.Latest("app"); err != nil || c == nil || c.State != pod.ContainerRunning || c.ImageID == "" {
		t.Fatalf("observed container: got %+v, %v", c, err)
	}
	if _, err := client.Observe(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	took("Observe settled")
	link := filepath.Join(dir, "links", "real_default_app-"+id+".log")
	eventually(t, "the log has the container's words", func() bool {
		text, _ := os.ReadFile(link)
		return strings.Contains(string(text), "name=real ip="+seen.Sandboxes[0].IPs[0]+" host=real") && strings.Contains(string(text), "192.0.2.9\talias.test")
	})
	clock = time.Now()
	if err := client.StopContainer(t.Context(), id, 5*time.Second); err != nil {
		t.Error(err)
	}
	took("StopContainer")
	seen, err = client.Observe(t.Context(), p.UID)
	if c := seen.Latest("app"); err != nil || c.State != pod.ContainerExited || c.ExitCode != 9 || c.Reason != "Error" || c.Message != "left: real" {
		t.Errorf("stopped container: got %+v, %v", c, err)
	}
	bad := *p.Spec.Containers[0].DeepCopy()
	bad.Name, bad.Command = "bad", []string{"/no/such/command"}
	req.Container = &bad
	badID, err := client.CreateContainer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	err = client.StartContainer(t.Context(), badID)
	t.Logf("no such command: %v", err)
	if pod.ReasonOf(err, "") != "RunContainerError" {
		t.Errorf("no such command: got %v", err)
	}
	seen, err = client.Observe(t.Context(), p.UID)
	if c := seen.Latest("bad"); err != nil || c.State != pod.ContainerExited || c.Reason != "StartError" {
		t.Errorf("no such command: got %+v, %v", c, err)
	}
	glance, err := client.Glance(t.Context())
	if err != nil || len(glance) == 0 {
		t.Errorf("glance: got %v, %v", glance, err)
	}
	if _, err := client.PullImage(t.Context(), "127.0.0.1:1/none:1", nil, nil); err == nil {
		t.Error("a pull from nowhere: got no error")
	} else {
		t.Logf("a pull from nowhere: %v", err)
	}
	clock = time.Now()
	if err := errors.Join(client.StopSandbox(t.Context(), box), client.RemoveContainer(t.Context(), id), client.RemoveSandbox(t.Context(), box), client.RemoveLogs(p)); err != nil {
		t.Error(err)
	}
	took("stop and remove")
	if seen, err = client.Observe(t.Context(), p.UID); err != nil || !seen.Empty() {
		t.Errorf("after the end: got %+v, %v", seen, err)
	}
	eventually(t, "an event of the pod's", func() bool { return look.of(p.UID) >= 6 })
	t.Logf("events: %d of the pod, %d of nobody", look.of(p.UID), look.of(""))
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
