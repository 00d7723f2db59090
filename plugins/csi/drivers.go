package csi

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"podd/internal/pod"
	"podd/plugins/registry"
)

// Waker is called for pods with volumes that can make progress, because the driver that they
// wait for has registered or a teardown that continued in the background has succeeded. It
// must not block.
type Waker interface{ Changed(uid pod.UID) }

// Plugins says why a plugin is not registered: the socket of its registrar, and the
// problem. Both are empty if there is no reason (registry.Registry).
type Plugins interface {
	Problem(name string) (socket, problem string)
	Dir() string
}

// drivers holds the registered drivers, and the pods that wait for other drivers.
type drivers struct {
	plugins Plugins
	log     *slog.Logger
	waker   Waker
	// onRegistered is called after a driver has registered.
	onRegistered func(name string)
	// onChange is called after a driver has registered or was removed.
	onChange func()
	timeout  time.Duration // for the questions to a driver that registers

	mu     sync.Mutex // guards what follows
	byName map[string]*driver
	// waiting maps a driver's name to the pods that wait for it.
	waiting map[string]map[pod.UID]bool
}

// driver is a registered driver. It is immutable.
type driver struct {
	name string
	// plugin registered the driver; endpoint is the path of the driver's socket.
	plugin   *registry.Plugin
	endpoint string
	version  string
	nodeID   string
	// topology is the node's place in the cluster's topology; maxVolumes is the most
	// volumes that can be attached, 0 for no limit.
	topology   map[string]string
	maxVolumes int64
}

func newDrivers(plugins Plugins, waker Waker, log *slog.Logger) *drivers {
	return &drivers{
		plugins: plugins, log: log, waker: waker, onRegistered: func(string) {}, onChange: func() {}, timeout: callTimeout,
		byName: map[string]*driver{}, waiting: map[string]map[pod.UID]bool{},
	}
}

// driver returns a registered driver. If it is not registered, the error says why, and
// the pod is woken once it is.
func (r *drivers) driver(name string, uid pod.UID) (*driver, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.byName[name]; d != nil {
		return d, nil
	}
	r.addWaitingLocked(name, uid)
	// Upstream's message, followed by the reason.
	err := fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	if socket, problem := r.plugins.Problem(name); problem != "" {
		return nil, fmt.Errorf("%w: the driver that registers at %s is rejected: %s", err, socket, problem)
	}
	return nil, fmt.Errorf("%w (drivers register with a socket in %s)", err, r.plugins.Dir())
}

// addWaiting makes a driver's next registration wake a pod: a registered driver may be
// unavailable.
func (r *drivers) addWaiting(name string, uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addWaitingLocked(name, uid)
}

func (r *drivers) addWaitingLocked(name string, uid pod.UID) {
	if uid == "" {
		return
	}
	if r.waiting[name] == nil {
		r.waiting[name] = map[pod.UID]bool{}
	}
	r.waiting[name][uid] = true
}

// removeWaiting ends a pod's wait for a driver.
func (r *drivers) removeWaiting(name string, uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := r.waiting[name]
	if delete(uids, uid); len(uids) == 0 {
		delete(r.waiting, name)
	}
}

// add registers a driver and wakes the pods that wait for it. As upstream, it rejects a
// name that another socket has registered, unless the version is higher.
func (r *drivers) add(d *driver) error {
	r.mu.Lock()
	if other := r.byName[d.name]; other != nil && other.plugin.Socket != d.plugin.Socket && !newer(d.version, other.version) {
		r.mu.Unlock()
		return fmt.Errorf("another driver with the same name is already registered with version %s by %s", other.version, other.plugin.Socket)
	}
	r.byName[d.name] = d
	waiting := slices.Sorted(maps.Keys(r.waiting[d.name]))
	delete(r.waiting, d.name)
	r.mu.Unlock()
	r.log.Info("CSI driver registered", "driver", d.name, "endpoint", d.endpoint, "version", d.version, "node_id", d.nodeID)
	for _, uid := range waiting {
		r.waker.Changed(uid)
	}
	r.onRegistered(d.name)
	r.onChange()
	return nil
}

// remove unregisters the driver that a plugin has registered, unless another has replaced it.
func (r *drivers) remove(p *registry.Plugin) {
	r.mu.Lock()
	d := r.byName[p.Name]
	registered := d != nil && d.plugin == p
	if registered {
		delete(r.byName, p.Name)
	}
	r.mu.Unlock()
	if registered {
		r.log.Info("CSI driver unregistered", "driver", p.Name, "endpoint", d.endpoint)
		r.onChange()
	}
}

// infos describes the registered drivers, sorted by name.
func (r *drivers) infos() (all []pod.CSIDriver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		d := r.byName[name]
		all = append(all, pod.CSIDriver{Name: name, NodeID: d.nodeID, Topology: d.topology, MaxVolumes: d.maxVolumes})
	}
	return all
}

// names returns the names of the registered drivers, sorted.
func (r *drivers) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.byName))
}
