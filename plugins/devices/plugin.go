package devices

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pluginconn"
	"podd/plugins/registry"
)

const (
	// maxList bounds a list of devices, in bytes: some 80,000 devices.
	maxList = 4 << 20
	// maxResponse bounds any other response.
	maxResponse = 1 << 20
)

// plugin is a connection to a registered plugin.
type plugin struct {
	endpoint string
	api      pluginapi.DevicePluginClient
	close    func()
	options  pluginOptions
	// stop closes done when another plugin has registered at the endpoint, when the plugin's
	// socket was removed, or when its resource has too many plugins.
	done     chan struct{}
	stopOnce sync.Once
	// devices is the newest list that the plugin sent, once listed is true. Manager.mu guards
	// both.
	devices map[string]device
	listed  bool
}

// pluginOptions says which calls a plugin wants besides Allocate.
type pluginOptions struct{ preStart, prefer bool }

// stop ends the plugin. It may be called more than once.
func (pl *plugin) stop() { pl.stopOnce.Do(func() { close(pl.done) }) }

var errPluginReplaced = errors.New("the plugin has registered again, was removed, or its resource had too many plugins")

// connect connects to a plugin and makes Run follow its devices. It blocks until the plugin
// has said what it supports.
func (m *Manager) connect(ctx context.Context, name, endpoint string) error {
	pl, err := m.dial(ctx, endpoint)
	if err != nil {
		return err
	}
	if err := m.addPlugin(name, pl); err != nil {
		pl.close()
		return err
	}
	m.metrics.registrations.WithLabelValues(name).Inc()
	m.log.Info("device plugin registered", "resource", name, "endpoint", endpoint)
	return nil
}

func (m *Manager) dial(ctx context.Context, endpoint string) (*plugin, error) {
	conn, err := pluginconn.Dial(endpoint, maxResponse)
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	if err := pluginconn.AwaitReady(ctx, conn, m.times.dial); err != nil {
		conn.Close()
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	pl := &plugin{endpoint: endpoint, api: pluginapi.NewDevicePluginClient(conn), close: func() { conn.Close() }, done: make(chan struct{})}
	within, cancel := context.WithTimeout(ctx, m.times.options)
	defer cancel()
	options, err := pl.api.GetDevicePluginOptions(within, &pluginapi.Empty{})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	pl.options = pluginOptions{preStart: options.GetPreStartRequired(), prefer: options.GetGetPreferredAllocationAvailable()}
	return pl, nil
}

// addPlugin adds a plugin to those of its resource. It replaces the plugin with the same
// endpoint. If there are too many, it replaces the oldest standby.
func (m *Manager) addPlugin(name string, pl *plugin) error {
	var n notification
	m.mu.Lock()
	r := m.resources[name]
	if r == nil {
		if !m.makeRoomLocked() {
			m.mu.Unlock()
			return fmt.Errorf("there are %d resources of device plugins, which is the most", maxResources)
		}
		r = &resource{}
		m.resources[name] = r
	}
	former := r.pluginAt(pl.endpoint)
	if former == nil && len(r.plugins) == maxPlugins {
		former = r.oldestStandby()
		m.log.Warn("a resource has too many device plugins: dropping the oldest standby", "resource", name, "endpoint", former.endpoint, "most", maxPlugins)
	}
	if former != nil {
		m.removePluginLocked(name, former, &n)
		former.stop()
	}
	r.plugins = append(r.plugins, pl)
	r.stoppedAt, r.gone = time.Time{}, false
	m.mu.Unlock()
	m.notify(n)
	m.loop.Go(func(ctx context.Context) { m.followPlugin(ctx, name, pl) })
	return nil
}

// makeRoomLocked says whether there is room for another resource. To make room, it forgets
// one that is gone.
func (m *Manager) makeRoomLocked() bool {
	if len(m.resources) < maxResources {
		return true
	}
	for name, r := range m.resources {
		if r.gone {
			delete(m.resources, name)
			m.metrics.forget(name)
			return true
		}
	}
	return false
}

// followPlugin processes a plugin's lists until the plugin or ctx ends.
func (m *Manager) followPlugin(ctx context.Context, name string, pl *plugin) {
	defer pl.close()
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-pl.done:
			cancel(errPluginReplaced)
		case <-own.Done():
		}
	}()
	err := m.receiveLists(own, name, pl)
	if ctx.Err() != nil {
		return // podd ends, and the plugin does not
	}
	if cause := context.Cause(own); cause != nil {
		err = cause
	}
	if m.handlePluginEnd(name, pl) {
		m.log.Warn("device plugin has ended: its devices are unhealthy", "resource", name, "endpoint", pl.endpoint, "error", err)
	} else {
		m.log.Info("device plugin has ended: its resource still has another plugin", "resource", name, "endpoint", pl.endpoint, "error", err)
	}
}

func (m *Manager) receiveLists(ctx context.Context, name string, pl *plugin) error {
	stream, err := pl.api.ListAndWatch(ctx, &pluginapi.Empty{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := m.updateDevices(name, pl, response.GetDevices()); err != nil {
			return err
		}
	}
}

// Register registers a plugin of plugins_registry. It blocks until the plugin has
// responded. The plugin gets the error.
func (m *Manager) Register(ctx context.Context, p *registry.Plugin) error {
	if err := checkPlugin(p.Name, p.Versions...); err != nil {
		return err
	}
	return m.connect(ctx, p.Name, p.Endpoint)
}

// Deregister says that the socket with which Register registered a plugin is gone.
func (m *Manager) Deregister(p *registry.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[p.Name]; r != nil {
		if pl := r.pluginAt(p.Endpoint); pl != nil {
			pl.stop()
		}
	}
}

// checkPlugin checks what a plugin says about itself, in upstream's words.
func checkPlugin(name string, versions ...string) error {
	supported := false
	for _, v := range versions {
		supported = supported || v == pluginapi.Version
	}
	if !supported {
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", shorten(fmt.Sprint(versions)), pluginapi.SupportedVersions)
	}
	if !isExtendedResource(name) {
		return fmt.Errorf("the ResourceName %q is invalid", shorten(name))
	}
	return nil
}
