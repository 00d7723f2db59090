package critest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
)

const image = "localhost/app:1"

type rig struct {
	*critest.Server
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
}

func newRig(t *testing.T, opts ...critest.Option) *rig {
	t.Helper()
	srv := critest.New(t, opts...)
	srv.AddImage(image)
	conn, err := grpc.NewClient(srv.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &rig{srv, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)}
}

func (r *rig) sandbox(t *testing.T, name string, attempt uint32) (string, error) {
	t.Helper()
	out, err := r.RuntimeServiceClient.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name, Attempt: attempt},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-" + name},
	}})
	return out.GetPodSandboxId(), err
}

func (r *rig) create(t *testing.T, sandbox, name string, attempt uint32) (string, error) {
	t.Helper()
	out, err := r.RuntimeServiceClient.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image},
	}})
	return out.GetContainerId(), err
}

func (r *rig) start(t *testing.T, id string) error {
	t.Helper()
	_, err := r.RuntimeServiceClient.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func state(t *testing.T, r *rig, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	out, err := r.RuntimeServiceClient.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return out.Status
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestRejectsWhatContainerdRejects(t *testing.T) {
	r := newRig(t)
	box := must[string](t)(r.sandbox(t, "a", 0))
	ctr := must[string](t)(r.create(t, box, "app", 0))
	if err := r.start(t, ctr); err != nil {
		t.Fatal(err)
	}
	gone := must[string](t)(r.sandbox(t, "b", 0))
	must[*runtimeapi.StopPodSandboxResponse](t)(r.RuntimeServiceClient.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: gone}))
	for _, tc := range []struct {
		name, text string
		code       codes.Code
		do         func() error
	}{
		{"sandbox name taken", "is reserved for", codes.Unknown, func() error { _, err := r.sandbox(t, "a", 0); return err }},
		{"container name taken", "is reserved for", codes.Unknown, func() error { _, err := r.create(t, box, "app", 0); return err }},
		{"no such sandbox", "failed to find sandbox id", codes.NotFound, func() error { _, err := r.create(t, "none", "x", 0); return err }},
		{"sandbox stopped", "is not running", codes.Unknown, func() error { _, err := r.create(t, gone, "x", 0); return err }},
		{"started twice", "container is in CONTAINER_RUNNING state", codes.Unknown, func() error { return r.start(t, ctr) }},
		{"no such container", "not found", codes.NotFound, func() error { return r.start(t, "none") }},
		{"no such status", "not found", codes.NotFound, func() error {
			_, err := r.RuntimeServiceClient.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "none"})
			return err
		}},
		{"no such image", "not found", codes.NotFound, func() error {
			_, err := r.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "localhost/none:1"}})
			return err
		}},
	} {
		err := tc.do()
		if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.text) {
			t.Errorf("%s: got %v, want %v %q", tc.name, err, tc.code, tc.text)
		}
	}
	// What is gone is stopped and removed already.
	_, e1 := r.RuntimeServiceClient.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: "none"})
	_, e2 := r.RuntimeServiceClient.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: "none"})
	_, e3 := r.RuntimeServiceClient.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "none"})
	if err := errors.Join(e1, e2, e3); err != nil {
		t.Errorf("clean-up of what is not there: %v", err)
	}
}

func TestScripts(t *testing.T) {
	r := newRig(t)
	r.Script("stubborn", critest.Script{IgnoreTERM: true})
	r.Script("short", critest.Script{ExitAfter: 10 * time.Millisecond, Code: 4})
	r.Script("broken", critest.Script{StartError: "no such file"})
	r.ScriptFunc("second", func(attempt uint32) critest.Script {
		if attempt == 0 {
			return critest.Script{ExitAfter: time.Millisecond, Reason: "OOMKilled", Code: 137}
		}
		return critest.Script{}
	})
	box := must[string](t)(r.sandbox(t, "a", 0))
	ids := map[string]string{}
	for _, name := range []string{"stubborn", "short", "broken", "second", "meek"} {
		ids[name] = must[string](t)(r.create(t, box, name, 0))
		if err := r.start(t, ids[name]); (err != nil) != (name == "broken") {
			t.Errorf("start %s: %v", name, err)
		}
	}
	for _, name := range []string{"stubborn", "meek"} {
		start := time.Now()
		must[*runtimeapi.StopContainerResponse](t)(r.RuntimeServiceClient.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: ids[name], Timeout: 1}))
		if took := time.Since(start); took < time.Second && name == "stubborn" { // the meek one says how it ended, below
			t.Errorf("stop %s took %v", name, took)
		}
	}
	eventually(t, "short and second end", func() bool {
		return state(t, r, ids["short"]).FinishedAt > 0 && state(t, r, ids["second"]).FinishedAt > 0
	})
	for name, want := range map[string]struct {
		code   int32
		reason string
	}{"stubborn": {137, "Error"}, "short": {4, "Error"}, "broken": {128, "StartError"}, "second": {137, "OOMKilled"}, "meek": {0, "Completed"}} {
		if st := state(t, r, ids[name]); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != want.code || st.Reason != want.reason {
			t.Errorf("%s: got %v %d %s, want %+v", name, st.State, st.ExitCode, st.Reason, want)
		}
	}
	again := must[string](t)(r.create(t, box, "second", 1))
	if err := r.start(t, again); err != nil || len(r.RunningContainers()) != 1 {
		t.Errorf("the second attempt: %v, %d run", err, len(r.RunningContainers()))
	}
}

func TestAddressesAreGivenBack(t *testing.T) {
	r := newRig(t)
	a, b := must[string](t)(r.sandbox(t, "a", 0)), must[string](t)(r.sandbox(t, "b", 0))
	if boxes := r.Sandboxes(); boxes[0].IP == boxes[1].IP || r.Addresses() != 2 {
		t.Errorf("got %d addresses: %v", r.Addresses(), boxes)
	}
	r.KillSandbox("a")
	if r.Addresses() != 2 {
		t.Errorf("a dead sandbox keeps its address until it is stopped: got %d", r.Addresses())
	}
	for _, id := range []string{a, b} {
		must[*runtimeapi.RemovePodSandboxResponse](t)(r.RuntimeServiceClient.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}))
	}
	if r.Addresses() != 0 || len(r.Sandboxes()) != 0 {
		t.Errorf("left: %d addresses, %d sandboxes", r.Addresses(), len(r.Sandboxes()))
	}
}

func TestFaults(t *testing.T) {
	r := newRig(t)
	r.FailNth("RunPodSandbox", 2, codes.ResourceExhausted, "no space left on device")
	must[string](t)(r.sandbox(t, "a", 0))
	if _, err := r.sandbox(t, "b", 0); status.Code(err) != codes.ResourceExhausted || len(r.Sandboxes()) != 1 {
		t.Errorf("the second call: got %v with %d sandboxes, want it refused without effect", err, len(r.Sandboxes()))
	}
	r.LoseAnswerNth("RunPodSandbox", 1)
	if _, err := r.sandbox(t, "b", 0); status.Code(err) != codes.Unavailable || len(r.Sandboxes()) != 2 {
		t.Errorf("a lost answer: got %v with %d sandboxes, want Unavailable and the effect", err, len(r.Sandboxes()))
	}
	r.Delay("Version", 50*time.Millisecond)
	start := time.Now()
	must[*runtimeapi.VersionResponse](t)(r.RuntimeServiceClient.Version(t.Context(), &runtimeapi.VersionRequest{}))
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("a delayed call took %v", took)
	}
	calls := r.Calls()
	if last := calls[len(calls)-1]; last.Method != "Version" || !last.Done || last.Code != codes.OK || r.Count("RunPodSandbox") != 3 {
		t.Errorf("calls: got %+v", calls)
	}
}

func TestFaultsOfOnePod(t *testing.T) {
	r := newRig(t)
	r.FailNth("RunPodSandbox shop", 1, codes.Internal, "no")
	r.FailNth("CreateContainer shop", 1, codes.Internal, "no")
	r.FailNth("StartContainer shop", 1, codes.Internal, "no")
	for _, name := range []string{"other", "shop"} {
		var got []codes.Code
		failed := func(err error) {
			if err != nil {
				got = append(got, status.Code(err))
			}
		}
		_, err := r.sandbox(t, name, 0)
		failed(err)
		box, _ := r.sandbox(t, name, 1)
		_, err = r.create(t, box, "web", 0)
		failed(err)
		id, err := r.create(t, box, "web", 1)
		failed(err)
		failed(r.start(t, id))
		if want := map[string]int{"shop": 3}[name]; len(got) != want {
			t.Errorf("%s: got %v, want %d failures", name, got, want)
		}
	}
}

func TestHangingCreateKeepsItsName(t *testing.T) {
	r := newRig(t)
	release := r.Hang("RunPodSandbox")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.RuntimeServiceClient.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Uid: "u"}}})
	if status.Code(err) != codes.DeadlineExceeded || len(r.Sandboxes()) != 0 {
		t.Fatalf("got %v, %d sandboxes", err, len(r.Sandboxes()))
	}
	release()
	eventually(t, "the create ends by itself", func() bool { return len(r.Sandboxes()) == 1 })

	r.Hang("RunPodSandbox")
	done := make(chan error, 1)
	go func() {
		_, err := r.RuntimeServiceClient.RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "b", Uid: "u"}}})
		done <- err
	}()
	eventually(t, "the call is under way", func() bool { return r.Count("RunPodSandbox") == 2 })
	r.Restart(0)
	if err := <-done; status.Code(err) != codes.Unavailable {
		t.Errorf("a create across a restart: got %v", err)
	}
	eventually(t, "the name is free again", func() bool { _, err := r.sandbox(t, "b", 0); return err == nil })
}

// listener collects events.
type listener struct {
	mu  sync.Mutex
	got []string
	err error
}

func (l *listener) follow(ctx context.Context, r *rig) {
	stream, err := r.RuntimeServiceClient.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var ev *runtimeapi.ContainerEventResponse
		if ev, err = stream.Recv(); err == nil {
			l.mu.Lock()
			l.got = append(l.got, ev.ContainerEventType.String()+" "+ev.PodSandboxStatus.GetMetadata().GetName())
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
}

func (l *listener) seen() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got), l.err
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	must[string](t)(r.sandbox(t, "early", 0)) // nobody listens: kept
	l := &listener{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go l.follow(ctx, r)
	eventually(t, "the kept events", func() bool { n, _ := l.seen(); return n == 2 })
	r.LoseEvents(true)
	must[string](t)(r.sandbox(t, "lost", 0))
	r.LoseEvents(false)
	box := must[string](t)(r.sandbox(t, "told", 0))
	must[*runtimeapi.RemovePodSandboxResponse](t)(r.RuntimeServiceClient.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box}))
	eventually(t, "four more events", func() bool { n, _ := l.seen(); return n == 6 })
	want := "CONTAINER_CREATED_EVENT early|CONTAINER_STARTED_EVENT early|CONTAINER_CREATED_EVENT told|CONTAINER_STARTED_EVENT told|CONTAINER_STOPPED_EVENT told|CONTAINER_DELETED_EVENT "
	if got := strings.Join(l.got, "|"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.DropStreams()
	eventually(t, "the stream ends", func() bool { _, err := l.seen(); return status.Code(err) == codes.Unavailable })
}

func TestStateSurvivesARestart(t *testing.T) {
	r := newRig(t)
	box := must[string](t)(r.sandbox(t, "a", 0))
	ctr := must[string](t)(r.create(t, box, "app", 0))
	if err := r.start(t, ctr); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	if _, err := r.RuntimeServiceClient.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("while it is away: got %v", err)
	}
	r.Start()
	eventually(t, "it answers again", func() bool {
		_, err := r.RuntimeServiceClient.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
	if st := state(t, r, ctr); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the restart: got %v", st.State)
	}
}

func TestPulls(t *testing.T) {
	r := newRig(t)
	r.Serve("localhost/slow", critest.Pull{Takes: 20 * time.Millisecond, Image: critest.Image{Size: 7}})
	r.Serve("localhost/bad:1", critest.Pull{Code: codes.Unknown, Text: "RegistryUnavailable: 503"})
	pull := func(ref string) error {
		_, err := r.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		return err
	}
	if err := pull("localhost/bad:1"); status.Convert(err).Message() != "RegistryUnavailable: 503" {
		t.Errorf("bad: got %v", err)
	}
	if err := pull("localhost/slow"); err != nil {
		t.Errorf("slow: got %v", err)
	}
	st := must[*runtimeapi.ImageStatusResponse](t)(r.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "localhost/slow:latest"}}))
	if st.Image.GetSize() != 7 {
		t.Errorf("the pulled image: got %v", st.Image)
	}
}
