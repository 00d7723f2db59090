package csi

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Waker is called for pods whose volumes can make progress: a driver that they wait for
// has registered, or a teardown that continued in the background has succeeded. It must
// not block.
type Waker interface{ Changed(uid pod.UID) }

// registry has the registered drivers, and the pods that wait for others.
type registry struct {
	dir   string
	log   *slog.Logger
	waker Waker
	// registered is called after a driver has registered.
	registered func(name string)
	// changed is called after one has registered or was removed.
	changed func()
	// handlers are those of plugins of other kinds, by registration's type; another type is
	// rejected.
	handlers map[string]PluginHandler
	times    times

	mu      sync.Mutex // guards what follows
	sockets map[string]*socket
	drivers map[string]*driver
	// waiting has the pods that wait for a driver, by its name.
	waiting map[string]map[pod.UID]bool
}

// times are the timeouts and the backoff of a registration.
type times struct {
	dial, info, node, notify time.Duration
	retry                    wake.Backoff
}

var upstreamTimes = times{
	dial: 10 * time.Second, info: time.Second, node: callTimeout, notify: 30 * time.Second,
	retry: wake.Backoff{First: 500 * time.Millisecond, Last: 2*time.Minute + 2*time.Second},
}

// driver is a registered driver. It is immutable.
type driver struct {
	name string
	// endpoint is the path of the driver's socket, registrar the path of the socket
	// that registered it.
	endpoint, registrar string
	version             string
	nodeID              string
	// topology is what of the cluster's topology the node is; maxVolumes is the most that
	// can be attached, 0 for no limit.
	topology   map[string]string
	maxVolumes int64
}

// socket is a registrar's socket, as long as its file exists.
type socket struct {
	file   fs.FileInfo
	cancel context.CancelFunc
	// name and problem are from the last failed attempt: the driver's name, if known, and
	// why it is not registered.
	name, problem string
	// handler has the plugin of another kind that it has registered, with this endpoint; nil
	// for none.
	handler  PluginHandler
	endpoint string
}

// PluginHandler has the plugins of one other kind, whose registrars have sockets in the same
// directory.
type PluginHandler interface {
	// Register may block until the plugin has responded. Its error is for the plugin.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	Deregister(name, endpoint string)
}

func newRegistry(dir string, waker Waker, log *slog.Logger) *registry {
	return &registry{
		dir: dir, log: log, waker: waker, registered: func(string) {}, changed: func() {}, times: upstreamTimes,
		sockets: map[string]*socket{}, drivers: map[string]*driver{}, waiting: map[string]map[pod.UID]bool{},
	}
}

// driver returns a registered driver. If it is not registered, the error says why, and
// the pod is woken once it is.
func (r *registry) driver(name string, uid pod.UID) (*driver, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drivers[name]; d != nil {
		return d, nil
	}
	r.waitLocked(name, uid)
	// Upstream's message, followed by the reason.
	err := fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	for _, path := range slices.Sorted(maps.Keys(r.sockets)) {
		if s := r.sockets[path]; s.problem != "" && (s.name == name || s.name == "") {
			return nil, fmt.Errorf("%w: the driver that registers at %s is rejected: %s", err, path, s.problem)
		}
	}
	return nil, fmt.Errorf("%w (drivers register with a socket in %s)", err, r.dir)
}

// wait has a pod woken when a driver registers again: a registered one may be
// unavailable.
func (r *registry) wait(name string, uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitLocked(name, uid)
}

func (r *registry) waitLocked(name string, uid pod.UID) {
	if uid == "" {
		return
	}
	if r.waiting[name] == nil {
		r.waiting[name] = map[pod.UID]bool{}
	}
	r.waiting[name][uid] = true
}

// forget ends a pod's wait for a driver.
func (r *registry) forget(name string, uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := r.waiting[name]
	if delete(uids, uid); len(uids) == 0 {
		delete(r.waiting, name)
	}
}

// add registers a driver and wakes the pods that wait for it. As upstream, it rejects a
// name that another socket has registered, unless the version is higher.
func (r *registry) add(s *socket, d *driver) error {
	r.mu.Lock()
	if r.sockets[d.registrar] != s {
		r.mu.Unlock()
		return errRemoved
	}
	if other := r.drivers[d.name]; other != nil && other.registrar != d.registrar && !newer(d.version, other.version) {
		r.mu.Unlock()
		return fmt.Errorf("another driver with the same name is already registered with version %s by %s", other.version, other.registrar)
	}
	r.drivers[d.name] = d
	s.name, s.problem = "", ""
	waiting := slices.Sorted(maps.Keys(r.waiting[d.name]))
	delete(r.waiting, d.name)
	r.mu.Unlock()
	r.log.Info("CSI driver registered", "driver", d.name, "endpoint", d.endpoint, "version", d.version, "node_id", d.nodeID)
	for _, uid := range waiting {
		r.waker.Changed(uid)
	}
	r.registered(d.name)
	r.changed()
	return nil
}

// remove unregisters the driver that a socket has registered.
func (r *registry) remove(path string) {
	r.mu.Lock()
	for name, d := range r.drivers {
		if d.registrar == path {
			delete(r.drivers, name)
			r.log.Info("CSI driver unregistered", "driver", name, "endpoint", d.endpoint)
		}
	}
	r.mu.Unlock()
	r.changed()
}

// fail records why a socket is not registered; news says whether that has changed.
func (r *registry) fail(s *socket, name string, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news = s.problem != err.Error()
	s.name, s.problem = name, err.Error()
	return news
}

// infos describes the registered drivers, sorted by name.
func (r *registry) infos() (all []pod.CSIDriver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.drivers)) {
		d := r.drivers[name]
		all = append(all, pod.CSIDriver{Name: name, NodeID: d.nodeID, Topology: d.topology, MaxVolumes: d.maxVolumes})
	}
	return all
}

// names returns the names of the registered drivers, sorted.
func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.drivers))
}
