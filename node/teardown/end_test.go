package teardown

import (
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
)

// twoPods returns a runtime with the pods db and web, each with a container of the
// same name; db's records its grace period.
func twoPods(t *testing.T) *critest.Server {
	t.Helper()
	srv := critest.New(t)
	image := srv.AddImage("localhost/podd/busybox:1")
	conn, err := grpc.NewClient(srv.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	for _, name := range []string{"db", "web"} {
		cfg := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "d", Uid: name}, LogDirectory: t.TempDir()}
		box, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		annotations := map[string]string{}
		if name == "db" {
			annotations["io.kubernetes.pod.terminationGracePeriod"] = "120"
		}
		c, err := runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: box.PodSandboxId, SandboxConfig: cfg, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image}, LogPath: "0.log",
			Labels: map[string]string{"io.kubernetes.pod.uid": name, "io.kubernetes.pod.name": name}, Annotations: annotations}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// TestRuntimeStopGivesContainersTheirGrace: stopping a sandbox kills its
// containers, and a database once got no stop signal.
func TestRuntimeStopGivesContainersTheirGrace(t *testing.T) {
	srv := twoPods(t)
	srv.ResetCalls()
	var out strings.Builder
	if err := endPods(t.Context(), strings.TrimPrefix(srv.Endpoint(), "unix://"), &out); err != nil {
		t.Fatal(err)
	}
	var graces []int64
	sandboxesFrom := -1
	for i, call := range srv.Calls() {
		switch r := call.Request.(type) {
		case *runtimeapi.StopContainerRequest:
			graces = append(graces, r.Timeout)
			if sandboxesFrom >= 0 {
				t.Error("a container was stopped after a sandbox")
			}
		case *runtimeapi.StopPodSandboxRequest:
			sandboxesFrom = i
		}
	}
	slices.Sort(graces)
	if !slices.Equal(graces, []int64{30, 120}) || sandboxesFrom < 0 {
		t.Errorf("graces of the containers: got %v, want 30 and 120; sandboxes stopped: %v", graces, sandboxesFrom >= 0)
	}
	if want := "ending 2 pods (2 containers running, which may take 2m0s)\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if left := len(srv.Sandboxes()); left > 0 {
		t.Errorf("%d sandboxes are left", left)
	}
}

func TestRuntimeStopCountsWhatRuns(t *testing.T) {
	srv := twoPods(t)
	srv.Exit("db", 0)
	var out strings.Builder
	if err := endPods(t.Context(), strings.TrimPrefix(srv.Endpoint(), "unix://"), &out); err != nil {
		t.Fatal(err)
	}
	if want := "ending 2 pods (1 container running, which may take 30s)\n"; out.String() != want || srv.Count("StopContainer") != 1 {
		t.Errorf("got %q and %d containers stopped, want %q and one", out.String(), srv.Count("StopContainer"), want)
	}
	out.Reset()
	if err := endPods(t.Context(), strings.TrimPrefix(srv.Endpoint(), "unix://"), &out); err != nil || out.Len() > 0 {
		t.Errorf("nothing to end: got %v, %q", err, out.String())
	}
}

func TestRuntimeStopNamesWhatDoesNotEnd(t *testing.T) {
	for call, want := range map[string]string{
		"StopContainer db": "pod db, container db: stop container", "StopPodSandbox db": "pod db: stop pod sandbox", "RemovePodSandbox db": "pod db: remove pod sandbox",
	} {
		srv := twoPods(t)
		for n := range 9 { // it is tried again as long as others end
			srv.FailNth(call, n+1, codes.Internal, "it is stuck")
		}
		err := endPods(t.Context(), strings.TrimPrefix(srv.Endpoint(), "unix://"), io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "it is stuck") {
			t.Errorf("%s: got %v, want %q", call, err, want)
		}
	}
}

// TestWhatSystemdKeepsIsNotEnded: systemd restarted what was stopped, and its
// files were then removed while in use.
func TestWhatSystemdKeepsIsNotEnded(t *testing.T) {
	for groups, want := range map[string]string{
		"0::/system.slice/podd.service\n":                                         "podd.service",
		"12:pids:/system.slice/podd-runtime.service\n1:name=systemd:/x\n":         "podd-runtime.service",
		"0::/user.slice/user-0.slice/session-3.scope\n":                           "",
		"0::/user.slice/user-1.slice/user@1.service/app.slice/terminal-1.scope\n": "",
		"0::/system.slice/ci-runner.service\n":                                    "",
	} {
		if got := unitOf(groups); got != want {
			t.Errorf("%q: got %q, want %q", groups, got, want)
		}
	}
}
