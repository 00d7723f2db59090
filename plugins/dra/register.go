package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podd/internal/pluginconn"
	"podd/internal/pod"
	"podd/plugins/registry"
)

const (
	// maxDrivers bounds the number of drivers, including those that only metrics still
	// name; maxInstances bounds the instances of one driver.
	maxDrivers, maxInstances = 256, 16
	// maxResponse bounds a driver's response, in bytes.
	maxResponse = 4 << 20
	// maxPath exceeds the length of any socket's path, in bytes.
	maxPath = 4096
)

// supportedServices are the versions of the API that podd speaks, the newest first.
var supportedServices = []string{drapb.DRAPluginService, drabeta.DRAPluginService}

// instance is a registered process of a driver. While a driver is updated without a gap, it
// has more than one.
type instance struct {
	driver, endpoint string
	api              drapb.DRAPluginClient
	// health are clients of the call for health, of its newest version first.
	health []healthapi.DRAResourceHealthClient
	// watch reports whether it is connected, until ctx ends.
	watch func(ctx context.Context, tell func(connected bool))
	close func()
	done  chan struct{} // closed when its registration has ended

	// Manager.mu guards the fields below.
	connected bool
	// devices is the health of its devices as it reports it.
	devices map[deviceKey]deviceHealth
}

// Register registers an instance of a driver, which need not listen yet. It does not block.
// The plugin gets the error, in upstream's words.
func (m *Manager) Register(_ context.Context, p *registry.Plugin) error {
	name, endpoint := p.Name, p.Endpoint
	if err := checkDriver(name, endpoint); err != nil {
		return fmt.Errorf("plugin validation failed with err: %w", err)
	}
	service, err := chooseService(p.Versions)
	if err != nil {
		return fmt.Errorf("plugin validation failed with err: invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %w", name, endpoint, err)
	}
	i, err := m.dial(name, endpoint, service)
	if err == nil {
		if err = m.addInstance(i); err != nil {
			i.close()
		}
	}
	if err != nil {
		return fmt.Errorf("plugin registration failed with err: %w", err)
	}
	m.log.Info("DRA driver registered", "driver", name, "endpoint", endpoint, "service", service)
	return nil
}

// checkDriver checks what a plugin says about itself. Upstream checks neither, and allows
// such names of drivers only in allocations.
func checkDriver(name, endpoint string) error {
	msgs := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > resourcev1.DriverNameMaxLength || len(msgs) > 0 {
		return fmt.Errorf("DRA driver name %q: want a DNS subdomain of at most %d characters", pluginconn.Shorten(name), resourcev1.DriverNameMaxLength)
	}
	if !filepath.IsAbs(endpoint) || len(endpoint) > maxPath || strings.Contains(endpoint, "\x00") {
		return fmt.Errorf("the endpoint %q of DRA driver %s is not the path of a socket", pluginconn.Shorten(endpoint), name)
	}
	return nil
}

// chooseService returns the first of a driver's services that podd speaks, like upstream's
// validateSupportedServices.
func chooseService(offered []string) (string, error) {
	if len(offered) == 0 {
		return "", errors.New("empty list of supported gRPC services (aka supported versions)")
	}
	for _, s := range offered {
		if slices.Contains(supportedServices, s) {
			return s, nil
		}
	}
	return "", fmt.Errorf("none of services supported by the plugin (%s) are supported by the kubelet (%q)", pluginconn.Shorten(fmt.Sprintf("%q", offered)), supportedServices)
}

func (m *Manager) dial(name, endpoint, service string) (*instance, error) {
	conn, err := pluginconn.Dial(endpoint, maxResponse, grpc.WithIdleTimeout(0), grpc.WithUnaryInterceptor(callTimer{name, m.metrics.calls}.intercept))
	if err != nil {
		return nil, fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w", name, endpoint, err)
	}
	i := &instance{
		driver: name, endpoint: endpoint, api: drapb.NewDRAPluginClient(conn), health: []healthapi.DRAResourceHealthClient{healthapi.NewDRAResourceHealthClient(conn), alphaHealth{conn}},
		watch: func(ctx context.Context, tell func(bool)) { pluginconn.Watch(ctx, conn, tell) },
		close: func() { conn.Close() }, done: make(chan struct{}),
	}
	if service == drabeta.DRAPluginService {
		i.api = drabeta.V1Beta1ClientWrapper{DRAPluginClient: drabeta.NewDRAPluginClient(conn)}
	}
	return i, nil
}

// addInstance adds an instance to those of its driver, and makes Run watch it.
func (m *Manager) addInstance(i *instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	others := m.drivers[i.driver]
	if slices.ContainsFunc(others, func(o *instance) bool { return o.endpoint == i.endpoint }) {
		return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", i.endpoint, i.driver)
	}
	if len(others) >= maxInstances {
		return fmt.Errorf("DRA driver %s has %d instances, which is the most", i.driver, maxInstances)
	}
	if !m.makeRoomLocked(i.driver) {
		return fmt.Errorf("there are %d DRA drivers, which is the most", maxDrivers)
	}
	i.devices = map[deviceKey]deviceHealth{}
	m.drivers[i.driver] = append(others, i)
	m.updateWipeLocked(i.driver)
	m.loop.Go(func(ctx context.Context) { m.watchInstance(ctx, i) })
	return nil
}

// makeRoomLocked says whether there is room for this driver. To make room, it forgets
// another one that is not registered.
func (m *Manager) makeRoomLocked(driver string) bool {
	if !m.measuredDrivers[driver] && len(m.measuredDrivers) >= maxDrivers {
		for other := range m.measuredDrivers {
			if len(m.drivers[other]) == 0 {
				delete(m.measuredDrivers, other)
				m.metrics.forget(other)
				break
			}
		}
	}
	if !m.measuredDrivers[driver] && len(m.measuredDrivers) >= maxDrivers {
		return false
	}
	m.measuredDrivers[driver] = true
	return true
}

// watchInstance watches an instance until its registration or ctx ends.
func (m *Manager) watchInstance(ctx context.Context, i *instance) {
	defer i.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		select {
		case <-i.done:
			cancel()
		case <-ctx.Done():
		}
	})
	work.Go(func() { m.followHealth(ctx, i) })
	i.watch(ctx, func(connected bool) { m.setConnected(i, connected) })
}

// setConnected records whether an instance is connected. If it is, it wakes the pods that
// wait for its driver.
func (m *Manager) setConnected(i *instance, connected bool) {
	var pods map[pod.UID]bool
	m.mu.Lock()
	if slices.Contains(m.drivers[i.driver], i) {
		i.connected = connected
		m.updateWipeLocked(i.driver)
		if connected {
			pods = m.waiting[i.driver]
			delete(m.waiting, i.driver)
			m.retryAt = time.Time{}
		}
	}
	m.mu.Unlock()
	m.wakePods(pods)
	m.loop.Wake()
}

// Deregister says that the socket with which an instance had registered is gone.
func (m *Manager) Deregister(p *registry.Plugin) {
	name, endpoint := p.Name, p.Endpoint
	m.mu.Lock()
	var gone *instance
	at := slices.IndexFunc(m.drivers[name], func(i *instance) bool { return i.endpoint == endpoint })
	if at >= 0 {
		gone = m.drivers[name][at]
		if m.drivers[name] = slices.Delete(m.drivers[name], at, at+1); len(m.drivers[name]) == 0 {
			delete(m.drivers, name)
		}
		close(gone.done)
		m.updateWipeLocked(name)
	}
	pods := m.usersLocked(name, nil)
	m.mu.Unlock()
	if gone != nil {
		m.log.Info("DRA driver unregistered", "driver", name, "endpoint", endpoint)
		m.wakePods(pods) // their devices' health is unknown
		m.loop.Wake()
	}
}

// instance returns the instance of a driver to call, as upstream: the newest that is
// connected, or else the newest.
func (m *Manager) instance(driver string) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instanceLocked(driver)
}

func (m *Manager) instanceLocked(driver string) (*instance, error) {
	all := m.drivers[driver]
	switch {
	case driver == "":
		return nil, errors.New("DRA driver name is empty")
	case len(all) == 0:
		return nil, fmt.Errorf("DRA driver %s is not registered", pluginconn.Shorten(driver))
	}
	for _, i := range slices.Backward(all) {
		if i.connected {
			return i, nil
		}
	}
	return all[len(all)-1], nil
}

// addWaitingLocked makes a driver's connection wake a pod.
func (m *Manager) addWaitingLocked(driver string, uid pod.UID) {
	if m.waiting[driver] == nil {
		m.waiting[driver] = map[pod.UID]bool{}
	}
	m.waiting[driver][uid] = true
}

// removeWaitingLocked ends a pod's wait for drivers.
func (m *Manager) removeWaitingLocked(uid pod.UID) {
	for driver, uids := range m.waiting {
		if delete(uids, uid); len(uids) == 0 {
			delete(m.waiting, driver)
		}
	}
}
