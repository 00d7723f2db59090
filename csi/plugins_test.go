package csi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugins records what a registry passes on.
type plugins struct {
	mu    sync.Mutex
	heard []string
	err   error
}

func (p *plugins) Register(_ context.Context, name, endpoint string, versions []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, "register "+name+" "+strings.Join(versions, ","))
	return p.err
}

func (p *plugins) Deregister(name, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, "deregister "+name)
}

func (p *plugins) list() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.heard, "; ")
}

func TestADevicePluginOfTheDirectoryIsPassedOn(t *testing.T) {
	p := &plugins{}
	n := newNode(t, "", func(v *Volumes) { v.registry.handlers = map[string]PluginHandler{registration.DevicePlugin: p} })
	f := newFake(t, "gpu.example.com")
	f.kind = registration.DevicePlugin
	f.serve().register(n)
	if s := <-f.status; !s.PluginRegistered {
		t.Errorf("the registrar got %v", s)
	}
	if got := p.list(); got != "register gpu.example.com 1.0.0" {
		t.Errorf("got %q", got)
	}
	f.stop()
	eventually(t, "it is removed with its socket", func() bool {
		return p.list() == "register gpu.example.com 1.0.0; deregister gpu.example.com"
	})
	if len(n.Drivers()) > 0 {
		t.Errorf("got drivers %v", n.Drivers())
	}
	refused := newFake(t, "bad.example.com")
	refused.kind = registration.DevicePlugin
	p.mu.Lock()
	p.err = errors.New("no such device")
	p.mu.Unlock()
	refused.serve().register(n)
	if s := <-refused.status; s.PluginRegistered || !strings.Contains(s.Error, "no such device") {
		t.Errorf("the registrar got %v", s)
	}
}
