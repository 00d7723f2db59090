package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	registered   = "register " + gpu + " 1.0.0 at /run/" + gpu + ".sock"
	deregistered = "; deregister " + gpu + " at /run/" + gpu + ".sock"
)

func TestAPluginIsRegisteredForAsLongAsItsSocketIsThere(t *testing.T) {
	for name, c := range map[string]struct{ says, at string }{
		"with a path":        {"/run/gpu.sock", "/run/gpu.sock"},
		"with a URL":         {"unix:///run/gpu.sock", "/run/gpu.sock"},
		"without a path":     {"", "gpu.example.com.sock"},
		"with an empty path": {"unix://", "gpu.example.com.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := newRig(t), newFake(t, gpu)
			f.info.Endpoint = c.says
			r.registers(f)
			at := " at " + c.at
			if !filepath.IsAbs(c.at) {
				at = " at " + r.path(c.at)
			}
			if got, want := r.list(), "register gpu.example.com 1.0.0"+at; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			eventually(t, "it counts as desired and as registered", func() bool { return testutil.CollectAndCount(r.Registry, "plugin_manager_total_plugins") == 2 })
			f.stop()
			want := "register gpu.example.com 1.0.0" + at + "; deregister gpu.example.com" + at
			eventually(t, "it is removed with its socket", func() bool { return r.list() == want })
		})
	}
}

// A plugin names its socket, also with bytes that no label may have: the scrape goes on.
func TestASocketWhoseNameIsNoUTF8DoesNotEndAScrape(t *testing.T) {
	r := &Registry{sockets: map[string]*socket{"/p/\xff.sock": {}, "/p/\xfe.sock": {}, "/p/gpu.sock": {}}}
	if n := testutil.CollectAndCount(r, "plugin_manager_total_plugins"); n != 2 { // two names have one label
		t.Errorf("got %d series, want 2", n)
	}
	for i := range 3 * maxSeries {
		r.sockets[fmt.Sprint(i)] = &socket{}
	}
	if n := testutil.CollectAndCount(r, "plugin_manager_total_plugins"); n > maxSeries+2 {
		t.Errorf("got %d series of %d sockets", n, len(r.sockets))
	}
}

// The registrar and Problem give the reason.
func TestAPluginThatIsRefusedHearsWhy(t *testing.T) {
	r := newRig(t, func(r *rig) { r.refuse = func(context.Context, *Plugin) error { return errors.New("no such device") } })
	f := newFake(t, gpu).serve(r.path("gpu.sock"))
	if s := <-f.status; s.PluginRegistered || s.Error != "RegisterPlugin error -- no such device" {
		t.Errorf("the registrar got %v", s)
	}
	r.problem(gpu, "no such device")
	if socket, _ := r.Problem(gpu); socket != r.path("gpu.sock") {
		t.Errorf("it registers at %s", socket)
	}
	if socket, problem := r.Problem("other.example.com"); socket != "" || problem != "" {
		t.Errorf("of another plugin: got %q, %q", socket, problem)
	}
	if !r.log.has("cannot register plugin: trying again") || !r.log.has("no such device") {
		t.Error("the log does not say why")
	}
}

// What a registrar says may be of any length.
func TestAPluginOfAnUnknownTypeIsRefused(t *testing.T) {
	r, f := newRig(t), newFake(t, gpu)
	f.info.Type = strings.Repeat("x", 99) + "éé"
	f.serve(r.path("gpu.sock"))
	want := "no handler registered for plugin type: " + strings.Repeat("x", 99) + "… at socket " + r.path("gpu.sock")
	if s := <-f.status; s.PluginRegistered || !strings.HasSuffix(s.Error, want) {
		t.Errorf("got %v, want %q", s, want)
	}
}

func TestARegistrarThatAnswersLateIsAProblem(t *testing.T) {
	r := newRig(t, func(r *rig) { r.times.info = 50 * time.Millisecond })
	f := newFake(t, gpu)
	f.asked = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	f.serve(r.path("gpu.sock"))
	r.problem("any.example.com", "failed to get plugin info using RPC GetInfo at socket "+r.path("gpu.sock")) // its name is not known
}

// A socket's file exists before its server listens, and stays behind after a crash.
func TestASocketWithoutAListenerIsRetried(t *testing.T) {
	r := newRig(t, func(r *rig) { r.times.dial = 50 * time.Millisecond })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path(".next.sock")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.Rename(r.path(".next.sock"), r.path(gpu+".sock")); err != nil {
		t.Fatal(err)
	}
	r.problem(gpu, "dial failed at socket")
	if err := os.Remove(r.path(gpu + ".sock")); err != nil {
		t.Fatal(err)
	}
	r.registers(newFake(t, gpu))
}

// The reason for its first failure is none for the time after its registration.
func TestAFailedRegistrationIsRetriedOnTheSameSocket(t *testing.T) {
	var once sync.Once
	r := newRig(t, func(r *rig) {
		r.refuse = func(context.Context, *Plugin) (err error) {
			once.Do(func() { err = errors.New("starting") })
			return err
		}
	})
	f := newFake(t, gpu).serve(r.path("gpu.sock"))
	if s := <-f.status; s.PluginRegistered {
		t.Fatal("registered at once")
	}
	if s := <-f.status; !s.PluginRegistered {
		t.Fatalf("the registrar got %v", s)
	}
	if _, problem := r.Problem(gpu); problem != "" {
		t.Errorf("its problem is %q", problem)
	}
}

// The pause doubles. Nothing says how much longer it is on a busy machine.
func TestAPluginIsAskedMoreAndMoreRarely(t *testing.T) {
	const first = 20 * time.Millisecond
	var mu sync.Mutex
	var asked []time.Time
	r := newRig(t, func(r *rig) {
		r.times.retry.Initial = first
		r.refuse = func(context.Context, *Plugin) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Now())
			return errors.New("starting")
		}
	})
	newFake(t, gpu).serve(r.path("gpu.sock"))
	eventually(t, "it is asked four times", func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) >= 4 })
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []time.Duration{first, 2 * first, 4 * first} {
		if got := asked[i+1].Sub(asked[i]); got < want {
			t.Errorf("attempt %d came after %v, want %v at least", i+2, got, want)
		}
	}
}

// Its handler must not keep a plugin that nobody would ever remove.
func TestAPluginWhoseSocketGoesWhileItRegistersIsTakenBack(t *testing.T) {
	holds := make(chan struct{})
	r := newRig(t, func(r *rig) { r.refuse = func(context.Context, *Plugin) error { <-holds; return nil } })
	newFake(t, gpu).serve(r.path("gpu.sock"))
	eventually(t, "it is being registered", func() bool { return r.list() == registered })
	if err := os.Remove(r.path("gpu.sock")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its socket is forgotten", func() bool { return r.known() == 0 })
	close(holds)
	eventually(t, "it is taken back", func() bool { return r.list() == registered+deregistered })
}

func TestARegistrationEndsWithItsSocket(t *testing.T) {
	ended := make(chan error, 1)
	r := newRig(t)
	r.refuse = func(ctx context.Context, p *Plugin) error {
		if err := os.Remove(p.Socket); err != nil {
			ended <- err
			return err
		}
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(20 * time.Second):
			ended <- errors.New("its context has not ended")
		}
		return ctx.Err()
	}
	newFake(t, gpu).serve(r.path("gpu.sock"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A plugin that does not know that it is registered registers again.
func TestAPluginThatCannotBeToldIsNotRegistered(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.times.retry.Initial = time.Hour
		r.refuse = func(_ context.Context, p *Plugin) error {
			if p.Name != gpu {
				return errors.New("it is refused")
			}
			return nil
		}
	})
	for _, name := range []string{gpu, "refused.example.com"} {
		f := newFake(t, name)
		f.told = func(context.Context) error { return status.Error(codes.Internal, "not listening") }
		f.serve(r.path(name + ".sock"))
	}
	r.problem(gpu, "failed to send registration status at socket "+r.path(gpu+".sock")+": rpc error: code = Internal desc = not listening")
	r.problem("refused.example.com", "it is refused") // the first reason
	if got := r.list(); !strings.Contains(got, registered) || !strings.Contains(got, deregistered[2:]) || strings.Contains(got, "deregister refused") {
		t.Errorf("got %q", got)
	}
}

// Its handler must not have the old one beside it.
func TestAPluginWhoseSocketIsReplacedRegistersAnew(t *testing.T) {
	r := newRig(t)
	r.registers(newFake(t, gpu))
	next := newFake(t, gpu).serve(r.path(".next.sock"))
	if err := os.Rename(r.path(".next.sock"), r.path(gpu+".sock")); err != nil {
		t.Fatal(err)
	}
	if s := <-next.status; !s.PluginRegistered {
		t.Errorf("the registrar got %v", s)
	}
	if got, want := r.list(), registered+deregistered+"; "+registered; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAtTheEndOfRunNothingIsRegistered(t *testing.T) {
	r := newRig(t)
	r.registers(newFake(t, gpu))
	r.stop()
	if got, want := r.list(), registered+deregistered; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPluginsOfDirectoriesAreFound(t *testing.T) {
	r := newRig(t)
	if err := os.Mkdir(r.path("sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	f := newFake(t, gpu).serve(r.path("sub/gpu.sock"))
	<-f.status
	// A directory may come with its socket, by a rename.
	if err := os.Mkdir(r.path("../made"), 0o750); err != nil {
		t.Fatal(err)
	}
	f = newFake(t, "other.example.com").serve(r.path("../made/other.sock"))
	if err := os.Rename(r.path("../made"), r.path("new")); err != nil {
		t.Fatal(err)
	}
	<-f.status
}

// As upstream: a name that begins with a dot is of a socket that is still being made.
func TestOnlySocketsWithAWholeNameRegister(t *testing.T) {
	r := newRig(t)
	hidden := newFake(t, "hidden.example.com").serve(r.path(".reg.sock"))
	if err := os.WriteFile(r.path("file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.registers(newFake(t, gpu))
	if known := r.known(); known != 1 {
		t.Errorf("%d sockets register, want 1", known)
	}
	if err := os.Rename(r.path(".reg.sock"), r.path("reg.sock")); err != nil {
		t.Fatal(err)
	}
	<-hidden.status
}

func TestASocketThatIsRenamedRegistersAnew(t *testing.T) {
	r, f := newRig(t), newFake(t, gpu)
	r.registers(f)
	if err := os.Rename(r.path(gpu+".sock"), r.path("renamed.sock")); err != nil {
		t.Fatal(err)
	}
	<-f.status
	if err := os.Remove(r.path("renamed.sock")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deregistered", func() bool { return r.list() == registered+deregistered+"; "+registered+deregistered })
}

// The kernel may tell of a file that podd has listed already.
func TestASocketThatIsFoundTwiceRegistersOnce(t *testing.T) {
	r, f := newRig(t), newFake(t, gpu)
	r.registers(f)
	var work sync.WaitGroup
	r.handlePath(t.Context(), nil, &work, r.path(gpu+".sock"))
	work.Wait()
	if got := r.list(); got != registered {
		t.Errorf("got %q", got)
	}
}

func TestTheDirectoryIsMadeAnew(t *testing.T) {
	r, f := newRig(t), newFake(t, gpu)
	r.registers(f)
	f.stop() // a socket that is open keeps the kernel from telling that its directory is removed
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory is there again", func() bool { _, err := os.Stat(r.dir); return err == nil })
	r.registers(newFake(t, gpu))
}

func TestPluginsRegisterOnceTheirDirectoryCanBeWatched(t *testing.T) {
	r := newRig(t, func(r *rig) {
		if err := errors.Join(os.Remove(r.dir), os.WriteFile(r.dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "the log says why", func() bool {
		return r.log.has("cannot watch for plugins: trying again") && r.log.has("not a directory")
	})
	if err := os.Remove(r.dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory is there again", func() bool { _, err := os.Stat(r.dir); return err == nil })
	r.registers(newFake(t, gpu))
}

func TestNewSaysWhyThereIsNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("got %v", err)
	}
}
