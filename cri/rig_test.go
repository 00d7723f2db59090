package cri_test

import (
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
	"podd/internal/pod"
)

const image = "localhost/podd/busybox:1"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is a client and its runtime.
type rig struct {
	*cri.Client
	srv  *critest.Server
	dir  string
	id   string // the image's
	opts cri.Options
	log  *slog.Logger
}

func newRig(t *testing.T, opts ...critest.Option) *rig {
	t.Helper()
	srv := critest.New(t, opts...)
	dir := t.TempDir()
	r := &rig{srv: srv, log: quiet, dir: dir, id: srv.AddImage(image)}
	r.opts = cri.Options{
		RootDir: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "pods"), ContainerLogsDir: filepath.Join(dir, "containers"),
		NodeName: "node-1", NodeIPs: []string{"192.0.2.1"},
	}
	r.dial(t)
	return r
}

func (r *rig) dial(t *testing.T) {
	t.Helper()
	c, err := cri.Dial(t.Context(), r.srv.Endpoint(), r.opts, r.log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r.Client = c
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
	id, err := r.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p, Source: pod.SourceFile, Attempt: attempt, StartTime: time.Unix(1700000000, 5)})
	if err != nil {
		t.Fatal(err)
	}
	return pod.Sandbox{ID: id, Attempt: attempt, Ready: true, IPs: []string{"10.99.0.3"}}
}

func (r *rig) request(p *v1.Pod, s pod.Sandbox, restarts int32) pod.ContainerRequest {
	return pod.ContainerRequest{
		Pod: p, Container: &p.Spec.Containers[0], Sandbox: s, Source: pod.SourceFile, StartTime: time.Unix(1700000000, 5),
		RestartCount: restarts, Image: pod.ImageState{Ready: true, Ref: r.id},
	}
}

func (r *rig) start(t *testing.T, p *v1.Pod, s pod.Sandbox, restarts int32) string {
	t.Helper()
	id, err := r.CreateContainer(t.Context(), r.request(p, s, restarts))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func (r *rig) observe(t *testing.T, uid pod.UID) pod.Observed {
	t.Helper()
	o, err := r.Observe(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
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
