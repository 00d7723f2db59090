package registry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// TestMain fails when a goroutine is left after the tests: with it a connection is.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu = "gpu.example.com"

// fake is a registrar, on a real socket.
type fake struct {
	registration.UnimplementedRegistrationServer
	t    *testing.T
	info *registration.PluginInfo
	// asked and told, if set, are called before GetInfo and NotifyRegistrationStatus respond; their
	// error is the response.
	asked, told func(context.Context) error
	status      chan *registration.RegistrationStatus
	stop        func()
}

func newFake(t *testing.T, name string) *fake {
	return &fake{t: t, status: make(chan *registration.RegistrationStatus, 100),
		info: &registration.PluginInfo{Type: registration.DevicePlugin, Name: name, Endpoint: "/run/" + name + ".sock", SupportedVersions: []string{"1.0.0"}}}
}

func (f *fake) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if f.asked != nil {
		if err := f.asked(ctx); err != nil {
			return nil, err
		}
	}
	return f.info, nil
}

func (f *fake) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if f.told != nil {
		if err := f.told(ctx); err != nil {
			return nil, err
		}
	}
	f.status <- s
	return &registration.RegistrationStatusResponse{}, nil
}

// serve starts the registrar at a path; its end removes the socket.
func (f *fake) serve(path string) *fake {
	f.t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		f.t.Fatal(err)
	}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, f)
	go func() { _ = s.Serve(l) }()
	f.stop = s.Stop
	f.t.Cleanup(s.Stop)
	return f
}

// rig is a Registry that runs, with a handler that records what it is given.
type rig struct {
	*Registry
	t    *testing.T
	log  *lines
	stop func()

	mu    sync.Mutex
	heard []string
	has   map[*Plugin]bool
	// refuse, if set, is called by Register; its error is Register's.
	refuse func(ctx context.Context, p *Plugin) error
}

func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	root, err := os.MkdirTemp("", "registry") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	r := &rig{t: t, log: &lines{}, has: map[*Plugin]bool{}}
	if r.Registry, err = New(filepath.Join(root, "plugins"), slog.New(slog.NewTextHandler(r.log, nil))); err != nil {
		t.Fatal(err)
	}
	r.times.retry.Initial = 10 * time.Millisecond
	r.Handle(registration.DevicePlugin, r)
	for _, f := range change {
		f(r)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx); close(done) }()
	ends := errors.New("podd ends")
	r.stop = sync.OnceFunc(func() {
		cancel(ends)
		if err := <-done; !errors.Is(err, ends) {
			t.Errorf("Run returned %v, want its context's cause", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) Register(ctx context.Context, p *Plugin) error {
	r.note("register " + p.Name + " " + strings.Join(p.Versions, ",") + " at " + p.Endpoint)
	if r.refuse != nil {
		if err := r.refuse(ctx, p); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has[p] = true
	return nil
}

func (r *rig) Deregister(p *Plugin) {
	r.note("deregister " + p.Name + " at " + p.Endpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.has[p] {
		r.t.Errorf("%s was deregistered, which is not registered", p.Name)
	}
	delete(r.has, p)
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, what)
}

func (r *rig) list() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.heard, "; ")
}

// path returns that of a socket in the directory.
func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// registers starts a registrar in the directory and waits until it is told of its registration.
func (r *rig) registers(f *fake) {
	r.t.Helper()
	f.serve(r.path(f.info.Name + ".sock"))
	if s := <-f.status; !s.PluginRegistered {
		r.t.Fatalf("%s was told %v", f.info.Name, s)
	}
}

// known returns how many sockets are known.
func (r *rig) known() int {
	r.Registry.mu.Lock()
	defer r.Registry.mu.Unlock()
	return len(r.sockets)
}

// problem waits until a plugin of that name has one with a text.
func (r *rig) problem(name, want string) {
	r.t.Helper()
	eventually(r.t, name+" is not registered, because: "+want, func() bool {
		_, problem := r.Problem(name)
		return strings.Contains(problem, want)
	})
}

// eventually waits for something that happens in the background.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}
