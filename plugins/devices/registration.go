package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/unixserver"
)

// serveRegistration serves registrations on kubelet.sock. It first removes the sockets of plugins,
// which makes them register again. stop ends that.
func (m *Manager) serveRegistration(work *sync.WaitGroup) (stop func(), err error) {
	if err := os.MkdirAll(m.dir, 0o750); err != nil {
		return nil, err
	}
	m.removeSockets()
	listener, err := unixserver.Listen(filepath.Join(m.dir, "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(append(unixserver.ServerOptions(), grpc.ConnectionTimeout(m.times.dial))...)
	pluginapi.RegisterRegistrationServer(server, registrationServer{m: m})
	work.Go(func() {
		if err := unixserver.Serve(server, listener); err != nil {
			m.log.Error("device plugins cannot register any more", "error", err)
		}
	})
	return server.Stop, nil
}

// removeSockets removes the sockets in the directory, and nothing else: no link, and
// nothing in subdirectories. Upstream does so for the same reason.
func (m *Manager) removeSockets() {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		m.log.Warn("cannot look for old sockets of device plugins", "dir", m.dir, "error", err)
		return
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(m.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Warn("cannot remove an old socket of a device plugin", "socket", e.Name(), "error", err)
		}
	}
}

type registrationServer struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
}

// Register registers a plugin. It blocks until podd is connected to it.
func (s registrationServer) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	began := time.Now()
	err := checkPlugin(r.GetResourceName(), r.GetVersion())
	endpoint := ""
	if err == nil {
		endpoint, err = s.m.socketPath(r.GetEndpoint())
	}
	if err == nil {
		err = s.m.connect(ctx, r.GetResourceName(), endpoint)
	}
	if err != nil {
		s.m.log.Warn("device plugin is rejected", "resource", shorten(r.GetResourceName()), "endpoint", shorten(r.GetEndpoint()), "error", err, "after", time.Since(began))
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

// socketPath returns the path of a plugin's socket. The socket must be in the directory, even
// after following links, because a plugin chooses which of the node's sockets podd talks
// to.
func (m *Manager) socketPath(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("the endpoint %q is not the name of a socket in %s", shorten(name), m.dir)
	}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return "", fmt.Errorf("look for the endpoint: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return "", fmt.Errorf("the endpoint %q is no socket", shorten(name))
	}
	return filepath.Join(m.dir, name), nil
}
