package cri_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
	"podd/internal/pod"
)

func TestUserNamespaceIsInEveryRequest(t *testing.T) {
	r := newRig(t)
	r.env.UserNamespace = func(uid pod.UID) (uint32, uint32, error) {
		if uid != "uid-web" {
			t.Errorf("asked for %s", uid)
		}
		return 131072, 65536, nil
	}
	r.dial(t)
	p := aPod("web", func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) })
	s := r.sandbox(t, p, 0)
	req := r.request(t, p, s, 0)
	req.Mounts = []pod.Mount{{HostPath: "/data", ContainerPath: "/d"}}
	if _, err := r.CreateContainer(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	mapped := func(ids []*runtimeapi.IDMapping) bool {
		return len(ids) == 1 && ids[0].HostId == 131072 && ids[0].ContainerId == 0 && ids[0].Length == 65536
	}
	config := r.srv.Containers()[0].Config
	for what, ns := range map[string]*runtimeapi.UserNamespace{
		"sandbox":   r.srv.Sandboxes()[0].Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
		"container": config.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
	} {
		if ns.GetMode() != runtimeapi.NamespaceMode_POD || !mapped(ns.GetUids()) || !mapped(ns.GetGids()) {
			t.Errorf("%s: got %v", what, ns)
		}
	}
	if len(config.Mounts) != 5 { // and the four files of the pod
		t.Errorf("mounts: got %v", config.Mounts)
	}
	for _, m := range config.Mounts {
		if !mapped(m.UidMappings) || !mapped(m.GidMappings) {
			t.Errorf("mount %s is not mapped: %v", m.ContainerPath, m)
		}
	}
}

func TestUserNamespaceThatTheRuntimeCannotMake(t *testing.T) {
	r := newRig(t, critest.WithHandlers([]*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "kata", Features: &runtimeapi.RuntimeHandlerFeatures{}}}, nil))
	r.env.UserNamespace = func(pod.UID) (uint32, uint32, error) { return 0, 0, errors.New("nobody may ask") }
	r.dial(t)
	for class, want := range map[string]string{
		"":     "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
		"kata": "can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does not support user namespaces",
	} {
		p := aPod("web", func(p *v1.Pod) { p.Spec.HostUsers, p.Spec.RuntimeClassName = ptr(false), &class })
		if _, err := r.run(t.Context(), p, 0); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", class, err, want)
		}
	}
	s, err := r.Status(t.Context())
	if err != nil || s.StrictGroups || len(s.Handlers) != 2 || s.Handlers[1].Name != "kata" {
		t.Errorf("status: got %+v, %v", s, err)
	}
}

// A runtime that does not tell its handlers is taken at its answer.
func TestRuntimeClassOfARuntimeThatTellsNothing(t *testing.T) {
	r := newRig(t, critest.WithHandlers(nil, nil))
	p := aPod("web", func(p *v1.Pod) { p.Spec.RuntimeClassName = ptr("kata") })
	if _, err := r.run(t.Context(), p, 0); err == nil || !strings.Contains(err.Error(), `no runtime for "kata" is configured`) {
		t.Errorf("got %v", err)
	}
}

func TestEphemeralContainerSeesItsTargetsProcesses(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) {
		for name, target := range map[string]string{"debug": "app", "lost": "none", "free": ""} {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: image}, TargetContainerName: target,
			})
		}
	})
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	r.srv.Exit("app", 1)
	newest := r.start(t, p, s, 1)
	create := func(name string) (*runtimeapi.NamespaceOption, error) {
		req := r.requestOf(t, p, &v1.Container{Name: name, Image: image}, s, 0)
		id, err := r.CreateContainer(t.Context(), req)
		for _, c := range r.srv.Containers() {
			if c.ID == id {
				return c.Config.Linux.SecurityContext.NamespaceOptions, err
			}
		}
		return nil, err
	}
	if n, err := create("debug"); err != nil || n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != newest {
		t.Errorf("with a target: got %v, %v, want the newest container of that name", n, err)
	}
	if n, err := create("free"); err != nil || n.Pid != runtimeapi.NamespaceMode_CONTAINER || n.TargetId != "" {
		t.Errorf("without a target: got %v, %v", n, err)
	}
	if _, err := create("lost"); pod.ReasonOf(err, "") != "CreateContainerConfigError" || err.Error() != "unable to find target container none" {
		t.Errorf("a target that is not there: got %v (%s)", err, pod.ReasonOf(err, ""))
	}
	p.Spec.ShareProcessNamespace = ptr(true)
	p.Spec.EphemeralContainers[0].Name, p.Spec.EphemeralContainers[0].TargetContainerName = "shared", "app"
	if n, err := create("shared"); err != nil || n.Pid != runtimeapi.NamespaceMode_POD {
		t.Errorf("where all share: got %v, %v", n, err)
	}
}

func TestRestartCountsGoOnWhereTheRuntimeLostTheContainers(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	logs := filepath.Join(r.dir, "pods", "default_web_uid-web", "app")
	if err := os.MkdirAll(filepath.Join(logs, "99.log"), 0o755); err != nil { // a directory is no log
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "3.log", "4.log.20260102-150405.gz", "readme", "x7.log", "-9.log", "99999999999.log"} {
		if err := os.WriteFile(filepath.Join(logs, name), nil, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := r.files.RestartCounts(p)
	if err != nil || len(counts) != 1 {
		t.Fatalf("got counts %v, %v", counts, err)
	}
	r.start(t, p, s, counts["app"])
	if c := r.observe(t, p.UID).LatestContainer("app"); c.RestartCount != 5 || filepath.Base(c.LogPath) != "5.log" {
		t.Errorf("got restart %d with log %s, want 5", c.RestartCount, c.LogPath)
	}
	if r.start(t, p, s, 9); r.observe(t, p.UID).LatestContainer("app").RestartCount != 9 {
		t.Errorf("got restart %d, want the 9 that was asked for", r.observe(t, p.UID).LatestContainer("app").RestartCount)
	}
}

// A container whose state the runtime lost is looked at anew each time, until a
// stop has settled it.
func TestContainerThatTheRuntimeLost(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	r.observe(t, p.UID)
	r.srv.Lose("app")
	c := r.observe(t, p.UID).LatestContainer("app")
	if c.State != pod.ContainerUnknown || c.ExitCode != 0 {
		t.Errorf("lost: got %+v", c)
	}
	if err := r.StopContainer(t.Context(), id, time.Second); err != nil {
		t.Fatal(err)
	}
	if c = r.observe(t, p.UID).LatestContainer("app"); c.State != pod.ContainerExited || c.ExitCode != 255 || c.Reason != "Unknown" {
		t.Errorf("after the stop: got %+v", c)
	}
}
