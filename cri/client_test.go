package cri_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri"
	"podd/cri/critest"
	"podd/cri/spec"
	"podd/internal/pod"
)

func TestPodLife(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	r.srv.Script("app", critest.Script{Message: "good bye", Log: []string{"hello"}})
	s := r.sandbox(t, p, 0)
	id := r.start(t, p, s, 0)

	o := r.observe(t, p.UID)
	if o.Name != "web" || o.Namespace != "default" || o.Source != pod.SourceFile || !o.StartTime.Equal(time.Unix(1700000000, 5)) {
		t.Errorf("identity: got %+v", o)
	}
	if len(o.Sandboxes) != 1 || !o.Sandboxes[0].Ready || len(o.Sandboxes[0].IPs) != 1 {
		t.Errorf("sandboxes: got %+v, want one ready with an address", o.Sandboxes)
	}
	if c := o.LatestContainer("app"); c == nil || c.State != pod.ContainerRunning || c.ID != id || c.StartedAt.IsZero() || c.Image != image {
		t.Errorf("container: got %+v, want it running", c)
	}
	link := filepath.Join(r.dir, "containers", "web_default_app-"+id+".log")
	if text, err := os.ReadFile(link); err != nil || !strings.Contains(string(text), "hello") {
		t.Errorf("log link: got %q, %v", text, err)
	}

	r.srv.Exit("app", 3)
	c := r.observe(t, p.UID).LatestContainer("app")
	if c.State != pod.ContainerExited || c.ExitCode != 3 || c.Reason != "Error" || c.Message != "good bye" || c.FinishedAt.IsZero() {
		t.Errorf("exited container: got %+v", c)
	}
	second := r.start(t, p, s, 1)
	if o := r.observe(t, p.UID); len(o.Containers) != 2 || o.LatestContainer("app").ID != second || o.LatestContainer("app").RestartCount != 1 {
		t.Errorf("after the restart: got %+v", o.Containers)
	}
	if err := r.StopContainer(t.Context(), second, time.Second); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.RemoveContainer(t.Context(), id, false), r.StopSandbox(t.Context(), s.ID), r.RemoveSandbox(t.Context(), s.ID)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Errorf("the log link outlives its container")
	}
	if o := r.observe(t, p.UID); !o.Empty() {
		t.Errorf("after removal: got %+v, want nothing", o)
	}
	if err := r.files.RemoveLogs(p); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(r.dir, "pods")); len(left) != 0 {
		t.Errorf("logs left: %v", left)
	}
	if left, _ := os.ReadDir(filepath.Join(r.dir, "containers")); len(left) != 0 {
		t.Errorf("links left: %v", left)
	}
	// Nothing of it is there, and so all of it is done.
	if err := errors.Join(r.RemoveContainer(t.Context(), id, false), r.StopContainer(t.Context(), id, 0), r.StopSandbox(t.Context(), s.ID), r.RemoveSandbox(t.Context(), s.ID)); err != nil {
		t.Errorf("clean-up twice: %v", err)
	}
}

// TestRemovedContainerKeepsItsLogWhenAsked: its log used to go with it always,
// long before its pod's end was a minute ago. The link and the termination log
// have nothing to lead to.
func TestRemovedContainerKeepsItsLogWhenAsked(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	logs := filepath.Join(r.dir, "pods", "default_web_uid-web", "app")
	left := func() string {
		var names []string
		for _, dir := range []string{logs, filepath.Join(r.dir, "containers"), filepath.Join(r.dir, "root", "pods", "uid-web", "containers", "app")} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				names = append(names, e.Name())
			}
		}
		return strings.Join(names, " ")
	}
	for _, tc := range []struct {
		restarts int32
		keep     bool
		want     string
	}{
		{0, true, "0.log 0.log.gz readme"},
		{1, true, "0.log 0.log.gz 1.log 1.log.gz readme"},
		{2, true, "1.log 1.log.gz 2.log 2.log.gz readme"}, // not those of all restarts
		{3, false, "1.log 1.log.gz 2.log 2.log.gz readme"},
	} {
		id := r.start(t, p, s, tc.restarts)
		rotated := filepath.Join(logs, fmt.Sprintf("%d.log.gz", tc.restarts))
		if err := errors.Join(os.WriteFile(rotated, nil, 0o640), os.WriteFile(filepath.Join(logs, "readme"), nil, 0o640)); err != nil {
			t.Fatal(err)
		}
		r.srv.Exit("app", 42)
		if err := r.RemoveContainer(t.Context(), id, tc.keep); err != nil {
			t.Error(err)
		}
		if got := left(); got != tc.want {
			t.Errorf("after the removal of %d (keep its log: %v): left %s, want %s", tc.restarts, tc.keep, got, tc.want)
		}
	}
}

func TestObserveOfASettledPodCostsTwoCalls(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	r.srv.Exit("app", 1)
	r.start(t, p, s, 1)
	r.observe(t, p.UID)
	r.srv.ResetCalls()
	o := r.observe(t, p.UID)
	if n := r.srv.Count(""); n != 2 {
		t.Errorf("calls of the second look: got %d, want 2", n)
	}
	if len(o.Containers) != 2 || o.Sandboxes[0].IPs == nil || o.LatestContainer("app").StartedAt.IsZero() {
		t.Errorf("the second look: got %+v", o)
	}
	r.srv.Exit("app", 7)
	if c := r.observe(t, p.UID).LatestContainer("app"); c.State != pod.ContainerExited || c.ExitCode != 7 {
		t.Errorf("after the exit: got %+v, want exited with 7", c)
	}
}

func TestTheGreetingSaysWhatIsWrong(t *testing.T) {
	old := critest.New(t, critest.WithCRIVersion("v1alpha2"))
	for _, tc := range []struct{ endpoint, want string }{
		{old.Endpoint(), "speaks v1alpha2 and podd speaks CRI v1 only"},
		{"tcp://127.0.0.1:1", "only unix sockets are supported"},
		{"unix://" + t.TempDir() + "/none.sock", "connect to the container runtime at"},
	} {
		if err := greet(t, tc.endpoint); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.endpoint, err, tc.want)
		}
	}
	if err := greet(t, "unix://"+t.TempDir()+"/none.sock"); !errors.Is(err, pod.ErrUnavailable) {
		t.Errorf("no socket: got %v, want ErrUnavailable", err)
	}
}

// greet says why a runtime cannot be connected to and asked who it is.
func greet(t *testing.T, endpoint string) error {
	conn, err := cri.Connect(endpoint, 0, quiet, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Check(t.Context())
	return err
}

func TestErrorClasses(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	r.srv.SetNetworkReady(false)
	_, err := r.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p})
	if !errors.Is(err, pod.ErrNetworkNotReady) || pod.ReasonOf(err, "") != "CreatePodSandboxError" {
		t.Errorf("no network: got %v (%s)", err, pod.ReasonOf(err, ""))
	}
	if st, err := r.Status(t.Context()); err != nil || !st.Runtime.OK || st.Network.OK || st.Network.Reason == "" || st.Network.Message == "" {
		t.Errorf("status: got %+v, %v", st, err)
	}
	r.srv.SetNetworkReady(true)
	s := r.sandbox(t, p, 0)
	req := r.request(t, p, s, 0)
	req.Image.Ref = "sha256:none"
	if _, err := r.CreateContainer(t.Context(), req); !errors.Is(err, pod.ErrNotFound) || pod.ReasonOf(err, "") != "CreateContainerError" {
		t.Errorf("no image: got %v (%s)", err, pod.ReasonOf(err, ""))
	}
	r.srv.Script("app", critest.Script{StartError: "exec: \"nope\": executable file not found in $PATH"})
	id, err := r.CreateContainer(t.Context(), r.request(t, p, s, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); pod.ReasonOf(err, "") != "RunContainerError" || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("no command: got %v", err)
	}
	if err := r.StartContainer(t.Context(), "none"); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("no container: got %v", err)
	}
	r.srv.FailNth("ListContainers", 1, codes.Unimplemented, "unknown method")
	if _, err := r.Observe(t.Context(), p.UID); !errors.Is(err, pod.ErrUnimplemented) {
		t.Errorf("unimplemented: got %v", err)
	}
}

// It is an operator who has to find out what it waits for.
func TestAContainerThatDoesNotDieIsMoreThanALateAnswer(t *testing.T) {
	r := newRig(t)
	r.timeout = 200 * time.Millisecond
	r.dial(t)
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	defer r.srv.Hang("StopContainer")()
	err := r.StopContainer(t.Context(), id, 0)
	if want := "its processes wait in the kernel for a device or a server"; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want deadline exceeded and %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.StopContainer(ctx, id, 0); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "kernel") {
		t.Errorf("got %v, want that it was canceled", err)
	}
}

func TestCreateWhoseAnswerIsLostIsFoundAgain(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	r.srv.LoseAnswerNth("RunPodSandbox", 1)
	s := r.sandbox(t, p, 0)
	r.srv.LoseAnswerNth("CreateContainer", 1)
	r.start(t, p, s, 0)
	if got := r.srv.RunningContainers(); len(got) != 1 || len(r.srv.Sandboxes()) != 1 {
		t.Errorf("got %d running containers in %d sandboxes, want one in one", len(got), len(r.srv.Sandboxes()))
	}
}

func TestReservedNameAsksForTheNextAttempt(t *testing.T) {
	r := newRig(t)
	r.BoundCreates(50 * time.Millisecond)
	p := aPod("web")
	release := r.srv.Hang("RunPodSandbox")
	for {
		_, err := r.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p})
		if errors.Is(err, pod.ErrNameReserved) {
			break
		}
		// On a busy machine, it may never have arrived.
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("hanging create: got %v, want deadline exceeded, and ErrNameReserved once one hangs", err)
		}
	}
	release()
	eventually(t, "the hanging create ends", func() bool { return len(r.srv.Sandboxes()) == 1 })
	// What was made late is found under its own attempt.
	if id, err := r.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p}); err != nil || id != r.srv.Sandboxes()[0].ID {
		t.Errorf("after the release: got %q, %v", id, err)
	}
	if _, err := r.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p, Attempt: 1}); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

// TestCancelledCreateReturnsBeforeTheRuntimeAnswers: how long a create may go on is its caller's
// affair; what comes of it is observed.
func TestCancelledCreateReturnsBeforeTheRuntimeAnswers(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	release := r.srv.Hang("RunPodSandbox")
	ctx := r.untilWaiting(t, "RunPodSandbox")
	if id, err := r.RunSandbox(ctx, pod.SandboxRequest{Pod: p}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v: want it cancelled", id, err)
	}
	release() // it has returned although the create went on
	eventually(t, "the late sandbox is found", func() bool { return len(r.observe(t, p.UID).Sandboxes) == 1 })
}

// TestObservedContainerTellsItsGracePeriod is what a pod is ended with whose
// manifest went while podd was not running.
func TestObservedContainerTellsItsGracePeriod(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		name          string
		own, deletion *int64
		want          time.Duration
	}{
		{"own", ptr(int64(77)), nil, 77 * time.Second},
		{"deletion", ptr(int64(77)), ptr(int64(5)), 5 * time.Second},
		{"none", ptr(int64(0)), nil, 0},
		{"negative", ptr(int64(-5)), nil, time.Second},
		{"more than a duration holds", ptr(int64(9999999999)), nil, pod.MaxInterval},
		{"unknown", nil, nil, -1},
	} {
		p := aPod(tc.name)
		p.Spec.TerminationGracePeriodSeconds, p.DeletionGracePeriodSeconds = tc.own, tc.deletion
		r.start(t, p, r.sandbox(t, p, 0), 0)
		got := time.Duration(-1)
		if g := r.observe(t, p.UID).LatestContainer("app").GracePeriod; g != nil {
			got = *g
		}
		if got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestMemosAreForgottenWithTheirPods: another client of the runtime may make a
// great many pods, each of which is looked at once.
func TestMemosAreForgottenWithTheirPods(t *testing.T) {
	r := newRig(t)
	stays, goes := aPod("stays"), aPod("goes")
	r.start(t, stays, r.sandbox(t, stays, 0), 0)
	box := r.sandbox(t, goes, 0)
	r.start(t, goes, box, 0)
	_, err := r.srv.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "theirs", Namespace: "default", Uid: "uid-theirs"},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-theirs"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []pod.UID{stays.UID, goes.UID, "uid-theirs"} {
		if o := r.observe(t, uid); o.Empty() {
			t.Fatalf("%s is not seen", uid)
		}
	}
	if got, want := r.Memos(), []pod.UID{goes.UID, stays.UID}; !slices.Equal(got, want) {
		t.Errorf("after a look at each, something is kept of %v, want %v", got, want)
	}
	// Behind podd's back, and nobody looks at it again.
	if _, err := r.srv.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Memos(), []pod.UID{stays.UID}; !slices.Equal(got, want) {
		t.Errorf("after a list, something is kept of %v, want %v", got, want)
	}
}

// TestRestartedRuntimeIsUsedAgainBeforeGRPCsOwnBackOffEnds: a client that leaves
// the pauses to gRPC waits for a second after the first refusal.
func TestRestartedRuntimeIsUsedAgainBeforeGRPCsOwnBackOffEnds(t *testing.T) {
	r := newRig(t)
	conn, err := grpc.NewClient(r.srv.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	control := runtimeapi.NewRuntimeServiceClient(conn)
	plain := func() error {
		_, err := control.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err
	}
	if err := plain(); err != nil {
		t.Fatal(err)
	}
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	r.srv.Stop()
	eventually(t, "the other client was refused", func() bool {
		return plain() != nil && conn.GetState() == connectivity.TransientFailure
	})
	if _, err := r.Observe(t.Context(), p.UID); !errors.Is(err, pod.ErrUnavailable) {
		t.Errorf("runtime away: got %v, want ErrUnavailable", err)
	}
	r.srv.Start()
	var first string
	eventually(t, "the pod is observed again", func() bool {
		if plain() == nil && first == "" {
			first = "the client with gRPC's own back-off"
		}
		o, err := r.Observe(t.Context(), p.UID)
		return err == nil && o.LatestContainer("app").State == pod.ContainerRunning
	})
	if first != "" {
		t.Errorf("%s was first to be answered again", first)
	}
}

func TestHangingStatusOfOnePodStallsNoOther(t *testing.T) {
	r := newRig(t)
	r.timeout = 200 * time.Millisecond
	r.dial(t)
	p, q := aPod("web"), aPod("other")
	r.start(t, p, r.sandbox(t, p, 0), 0)
	r.start(t, q, r.sandbox(t, q, 0), 0)
	r.observe(t, q.UID)
	defer r.srv.Hang("ContainerStatus")()
	done := make(chan error, 1)
	go func() {
		_, err := r.Observe(context.Background(), p.UID)
		done <- err
	}()
	if o := r.observe(t, q.UID); o.LatestContainer("app") == nil {
		t.Error("the other pod is not seen")
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the hanging pod: got %v, want deadline exceeded", err)
	}
}

func TestSummariesAreOfPoddsPodsOnly(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	id := r.start(t, p, s, 0)
	foreign := aPod("foreign")
	r.sandbox(t, foreign, 0)
	if err := os.RemoveAll(r.opts.Dirs.Pod(foreign.UID)); err != nil { // podd has made nothing for it
		t.Fatal(err)
	}
	for _, b := range r.srv.Sandboxes() {
		if b.Pod == "foreign" {
			delete(b.Config.Annotations, pod.AnnotationStartTime)
		}
	}
	g, err := r.Summaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(g) != 1 || g[0].UID != p.UID || g[0].Source != pod.SourceFile || !g[0].Sandboxes[s.ID] || g[0].Containers[id] != pod.ContainerRunning {
		t.Errorf("got %+v, want the one pod", g)
	}
}

func TestEventsNameThePod(t *testing.T) {
	r := newRig(t)
	got := make(chan pod.UID, 100)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- r.Events(ctx, func(uid pod.UID, _ time.Time) { got <- uid }) }()
	eventually(t, "a listener", func() bool { return r.srv.Listeners() == 1 })
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	r.srv.Exit("app", 0)
	if err := r.RemoveSandbox(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	for i := range 8 { // sandbox and container: created, started, stopped, deleted
		select {
		case uid := <-got:
			if uid != p.UID {
				t.Errorf("event %d: got pod %q, want %q", i, uid, p.UID)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("event %d did not come", i)
		}
	}
	r.srv.DropStreams()
	if err := <-ended; !errors.Is(err, pod.ErrUnavailable) {
		t.Errorf("dropped stream: got %v", err)
	}
}

func TestEventsUnimplemented(t *testing.T) {
	r := newRig(t, critest.WithoutEvents())
	if err := r.Events(t.Context(), func(pod.UID, time.Time) {}); !errors.Is(err, pod.ErrUnimplemented) {
		t.Errorf("got %v, want ErrUnimplemented", err)
	}
}

func TestMetricsHaveTheKubeletsNames(t *testing.T) {
	srv := critest.New(t)
	reg := prometheus.NewRegistry()
	conn, err := cri.Connect(srv.Endpoint(), 0, quiet, reg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := cri.NewClient(conn, spec.Options{})
	if _, err := c.Summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.FailNth("Status", 1, codes.Internal, "no")
	_, _ = c.Status(t.Context())
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				got[fmt.Sprintf("%s{%s}", f.GetName(), l.GetValue())] = m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
	}
	for _, want := range []string{
		"kubelet_runtime_operations_total{list_podsandbox}", "kubelet_runtime_operations_total{list_containers}",
		"kubelet_runtime_operations_errors_total{status}", "kubelet_runtime_operations_duration_seconds{status}",
	} {
		if got[want] != 1 {
			t.Errorf("%s: got %v, want 1", want, got[want])
		}
	}
}

// TestContainerThatOutlivedItsSandboxIsStillPodds: a create that was given up
// may come true after the sandbox was removed.
func TestContainerThatOutlivedItsSandboxIsStillPodds(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	release := r.srv.Hang("CreateContainer")
	ctx := r.untilWaiting(t, "CreateContainer")
	if _, err := r.CreateContainer(ctx, r.request(t, p, s, 0)); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v: want it cancelled", err)
	}
	if err := errors.Join(r.StopSandbox(t.Context(), s.ID), r.RemoveSandbox(t.Context(), s.ID)); err != nil {
		t.Fatal(err)
	}
	release()
	eventually(t, "the container is made", func() bool { return len(r.srv.Containers()) == 1 })
	seen := r.observe(t, p.UID)
	if seen.StartTime.IsZero() || seen.Name != "web" || seen.Source != pod.SourceFile || len(seen.Containers) != 1 {
		t.Errorf("observed %+v, want podd's pod and its container", seen)
	}
	summaries, err := r.Summaries(t.Context())
	if err != nil || len(summaries) != 1 || summaries[0].UID != p.UID || len(summaries[0].Containers) != 1 {
		t.Errorf("summaries: got %+v, %v, want the pod", summaries, err)
	}
}
