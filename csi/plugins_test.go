package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugins records what a registry passes on.
type plugins struct {
	mu    sync.Mutex
	heard []string
	err   error
	// holds, if there is one, is what Register waits for.
	holds chan struct{}
}

func (p *plugins) Register(_ context.Context, name, endpoint string, versions []string) error {
	p.mu.Lock()
	p.heard = append(p.heard, "register "+name+" "+strings.Join(versions, ",")+" at "+endpoint)
	err := p.err
	p.mu.Unlock()
	if p.holds != nil {
		<-p.holds
	}
	return err
}

func (p *plugins) Deregister(name, endpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, "deregister "+name+" at "+endpoint)
}

func (p *plugins) list() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.heard, "; ")
}

// devicePlugin returns a node that passes plugins on, and a registrar of one.
func devicePlugin(t *testing.T, p *plugins, change ...func(*Volumes)) (*testNode, *fake) {
	n := nodeOf(t, "", Config{Plugins: map[string]PluginHandler{registration.DevicePlugin: p}}, change...)
	f := newFake(t, "gpu.example.com")
	f.kind = registration.DevicePlugin
	return n, f
}

func TestADevicePluginOfTheDirectoryIsPassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		socket func(*fake) string
		at     func(*fake, *testNode) string
	}{
		"with a path":        {(*fake).endpoint, func(f *fake, _ *testNode) string { return f.endpoint() }},
		"with a URL":         {func(f *fake) string { return "unix://" + f.endpoint() }, func(f *fake, _ *testNode) string { return f.endpoint() }},
		"without a path":     {func(*fake) string { return "" }, (*fake).registrar},
		"with an empty path": {func(*fake) string { return "unix://" }, (*fake).registrar},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plugins{}
			n, f := devicePlugin(t, p)
			f.socket = c.socket(f)
			f.serve().register(n)
			if s := <-f.status; !s.PluginRegistered {
				t.Errorf("the registrar got %v", s)
			}
			at := " at " + c.at(f, n)
			if got, want := p.list(), "register gpu.example.com 1.0.0"+at; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			f.stop()
			want := "register gpu.example.com 1.0.0" + at + "; deregister gpu.example.com" + at
			eventually(t, "it is removed with its socket", func() bool { return p.list() == want })
			if len(n.Drivers()) > 0 {
				t.Errorf("got drivers %v", n.Drivers())
			}
		})
	}
}

func TestADevicePluginThatIsRefusedHearsWhy(t *testing.T) {
	n, f := devicePlugin(t, &plugins{err: errors.New("no such device")})
	f.serve().register(n)
	if s := <-f.status; s.PluginRegistered || !strings.Contains(s.Error, "no such device") {
		t.Errorf("the registrar got %v", s)
	}
}

// Its handler must not keep a plugin that nobody would ever remove.
func TestADevicePluginWhoseSocketGoesWhileItRegistersIsTakenBack(t *testing.T) {
	p := &plugins{holds: make(chan struct{})}
	n, f := devicePlugin(t, p)
	f.serve().register(n)
	want := "register gpu.example.com 1.0.0 at " + f.endpoint()
	eventually(t, "it is being registered", func() bool { return p.list() == want })
	if err := os.Remove(f.registrar(n)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its socket is forgotten", n.knowsNoSocket)
	close(p.holds)
	eventually(t, "it is taken back", func() bool { return p.list() == want+"; deregister gpu.example.com at "+f.endpoint() })
}

// A plugin that does not know that it is registered registers again.
func TestAPluginThatCannotBeToldIsNotRegistered(t *testing.T) {
	p := &plugins{}
	slowly := func(v *Volumes) { v.registry.times.retry.First = time.Hour }
	n, device := devicePlugin(t, p, slowly)
	driver, liar := newFake(t, driverName), newFake(t, "liar.example.com")
	liar.says = "other.example.com"
	for _, f := range []*fake{device, driver, liar} {
		f.on("NotifyRegistrationStatus", func(context.Context) error { return status.Error(codes.Internal, "not listening") })
		f.serve().register(n)
	}
	for name, want := range map[string]string{
		driverName:         "failed to send registration status at socket " + driver.registrar(n) + ": rpc error: code = Internal desc = not listening",
		"gpu.example.com":  "failed to send registration status at socket " + device.registrar(n),
		"liar.example.com": `says that it is "other.example.com"`, // the first reason
	} {
		eventually(t, name+" is not registered, because: "+want, func() bool {
			_, err := n.registry.driver(name, "")
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	if got := n.Drivers(); len(got) > 0 {
		t.Errorf("registered are %v", got)
	}
	at := " at " + device.endpoint()
	if got, want := p.list(), "register gpu.example.com 1.0.0"+at+"; deregister gpu.example.com"+at; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Its handler must not have the old one beside it.
func TestADevicePluginWhoseSocketIsReplacedRegistersAnew(t *testing.T) {
	p := &plugins{}
	n, f := devicePlugin(t, p)
	f.serve().register(n)
	<-f.status
	next := newFake(t, f.name).serve()
	next.kind = f.kind
	registerAs(next, n, ".next.sock")
	if err := os.Rename(filepath.Join(n.registry.dir, ".next.sock"), f.registrar(n)); err != nil {
		t.Fatal(err)
	}
	if s := <-next.status; !s.PluginRegistered {
		t.Errorf("the registrar got %v", s)
	}
	const name = "gpu.example.com"
	if got, want := p.list(), "register "+name+" 1.0.0 at "+f.endpoint()+"; deregister "+name+" at "+f.endpoint()+"; register "+name+" 1.0.0 at "+next.endpoint(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAtTheEndOfRunNothingIsRegistered(t *testing.T) {
	p := &plugins{}
	n, device := devicePlugin(t, p)
	device.serve().register(n)
	<-device.status
	newFake(t, driverName).serve().register(n)
	n.has(driverName)
	n.stop()
	at := " at " + device.endpoint()
	if got, want := p.list(), "register gpu.example.com 1.0.0"+at+"; deregister gpu.example.com"+at; got != want || len(n.Drivers()) > 0 {
		t.Errorf("got %q and drivers %v, want %q and none", got, n.Drivers(), want)
	}
}
