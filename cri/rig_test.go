package cri_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/cri"
	"podd/cri/critest"
	"podd/cri/spec"
	"podd/internal/pod"
	"podd/podenv"
	"podd/podfs"
)

const image = "localhost/podd/busybox:1"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is a client and its runtime, with what a worker and the relister do around
// the client's calls.
type rig struct {
	*cri.Client
	files   *podfs.Files
	srv     *critest.Server
	dir     string
	id      string // the image's
	opts    spec.Options
	timeout time.Duration // of requests; 0 for the default
	env     podenv.Config
	log     *slog.Logger
}

func newRig(t *testing.T, opts ...critest.Option) *rig {
	t.Helper()
	srv := critest.New(t, opts...)
	dir := t.TempDir()
	r := &rig{srv: srv, log: quiet, dir: dir, id: srv.AddImage(image)}
	r.opts.Dirs = podfs.Dirs{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "pods"), ContainerLogs: filepath.Join(dir, "containers")}
	r.env = podenv.Config{NodeName: "node-1", NodeIPs: func() []string { return []string{"192.0.2.1"} }}
	r.dial(t)
	return r
}

func (r *rig) dial(t *testing.T) {
	t.Helper()
	r.Client, r.files = cri.NewClient(connect(t, r.srv.Endpoint(), r.timeout, r.log), r.opts), podfs.New(r.opts.Dirs, r.log)
}

// connect connects to a runtime that answers.
func connect(t *testing.T, endpoint string, timeout time.Duration, log *slog.Logger) *cri.Conn {
	t.Helper()
	conn, err := cri.Connect(endpoint, timeout, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

func aPod(name string, edit ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: pod.UID("uid-" + name)},
		Spec: v1.PodSpec{
			DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: "app", Image: image, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func (r *rig) sandbox(t *testing.T, p *v1.Pod, attempt uint32) pod.Sandbox {
	t.Helper()
	id, err := r.run(t.Context(), p, attempt)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Sandbox{ID: id, Attempt: attempt, Ready: true, IPs: []string{"10.99.0.3"}}
}

// run computes a sandbox's inputs and makes it, as a worker does.
func (r *rig) run(ctx context.Context, p *v1.Pod, attempt uint32) (string, error) {
	handler, err := r.Handler(ctx, p)
	if err != nil {
		return "", err
	}
	in, err := podenv.New(r.env).Sandbox(p)
	if err != nil {
		return "", pod.WithReason("ConfigPodSandboxError", err)
	}
	if err := r.files.PreparePod(p, in); err != nil {
		return "", err
	}
	return r.RunSandbox(ctx, pod.SandboxRequest{
		Pod: p, Source: pod.SourceFile, Attempt: attempt, StartTime: time.Unix(1700000000, 5), Handler: handler, Inputs: in,
	})
}

// request computes the inputs of the pod's first container, as a worker does.
func (r *rig) request(t *testing.T, p *v1.Pod, s pod.Sandbox, restarts int32) pod.ContainerRequest {
	t.Helper()
	return r.requestOf(t, p, &p.Spec.Containers[0], s, restarts)
}

func (r *rig) requestOf(t *testing.T, p *v1.Pod, c *v1.Container, s pod.Sandbox, restarts int32) pod.ContainerRequest {
	t.Helper()
	env := podenv.New(r.env)
	box, err := env.Sandbox(p)
	if err != nil {
		t.Fatal(err)
	}
	in, err := env.Container(p, c, s.IPs)
	if err != nil {
		t.Fatal(err)
	}
	return pod.ContainerRequest{
		Pod: p, Container: c, Sandbox: s, Source: pod.SourceFile, StartTime: time.Unix(1700000000, 5),
		SandboxInputs: box, Inputs: in, RestartCount: restarts, Image: pod.ImageState{Ready: true, Ref: r.id},
	}
}

// CreateContainer makes a container with its files.
func (r *rig) CreateContainer(ctx context.Context, req pod.ContainerRequest) (string, error) {
	made, err := r.create(ctx, req)
	return made.ID, err
}

func (r *rig) create(ctx context.Context, req pod.ContainerRequest) (made pod.Container, err error) {
	if req, err = r.files.PrepareContainer(req); err != nil {
		return made, err
	}
	id, err := r.Client.CreateContainer(ctx, req)
	if err != nil {
		return made, errors.Join(err, r.files.DiscardContainer(req))
	}
	return pod.Container{ID: id, Name: req.Container.Name, SandboxID: req.Sandbox.ID, LogPath: req.LogPath, TerminationLog: req.TerminationLog}, nil
}

// RemoveContainer removes a container with its files.
func (r *rig) RemoveContainer(ctx context.Context, id string, keepLog bool) error {
	err := r.Client.RemoveContainer(ctx, id)
	if err == nil {
		r.files.ContainerRemoved(id, keepLog)
	}
	return err
}

// RemoveSandbox removes a sandbox with the links of its containers.
func (r *rig) RemoveSandbox(ctx context.Context, id string) error {
	err := r.Client.RemoveSandbox(ctx, id)
	if err == nil {
		r.files.SandboxRemoved(id)
	}
	return err
}

// Summaries drops the links of what is not listed any more.
func (r *rig) Summaries(ctx context.Context) ([]pod.Summary, error) {
	mark := r.files.MarkListing()
	listed, err := r.Client.Summaries(ctx)
	if err == nil {
		r.files.PruneUnlisted(listed, mark)
	}
	return listed, err
}

// start makes, starts and links a container.
func (r *rig) start(t *testing.T, p *v1.Pod, s pod.Sandbox, restarts int32) string {
	t.Helper()
	made, err := r.create(t.Context(), r.request(t, p, s, restarts))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	r.files.Link(pod.Observed{UID: p.UID, Name: p.Name, Namespace: p.Namespace, Containers: []pod.Container{made}})
	return made.ID
}

func (r *rig) observe(t *testing.T, uid pod.UID) pod.Observed {
	t.Helper()
	o, err := r.Observe(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	r.files.Link(o)
	return o
}

// eventually waits for what happens on other goroutines.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// untilWaiting returns a context that is cancelled once such a call hangs in the
// runtime.
func (r *rig) untilWaiting(t *testing.T, method string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		defer cancel()
		for r.srv.Waiting(method) == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx
}
