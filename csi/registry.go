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
)

// Waker is told of pods whose volumes can get on: a driver that they wait for has
// registered, or a volume that they owe is given back. It must not block.
type Waker interface{ Changed(uid pod.UID) }

// registry is the drivers that are registered, and who waits for others.
type registry struct {
	dir   string
	log   *slog.Logger
	waker Waker
	// registered is called, beside, when a driver has registered.
	registered func(name string)
	times      times

	mu      sync.Mutex // guards what follows
	sockets map[string]*socket
	drivers map[string]*driver
	// waiting are the pods that asked for a driver that was not there.
	waiting map[string]map[pod.UID]bool
}

// times bound the steps of a registration; they are the kubelet's.
type times struct {
	dial, info, node, notify time.Duration
	firstRetry, lastRetry    time.Duration
}

var upstreamTimes = times{
	dial: 10 * time.Second, info: time.Second, node: callTimeout, notify: 30 * time.Second,
	firstRetry: 500 * time.Millisecond, lastRetry: 2*time.Minute + 2*time.Second,
}

// driver is a registered driver. It is immutable.
type driver struct {
	name string
	// endpoint is the path of the driver's socket, and registrar that of the
	// socket that registered it.
	endpoint, registrar string
	version             string
	nodeID              string
}

// socket is a registrar's, while its file is there.
type socket struct {
	file   fs.FileInfo
	cancel context.CancelFunc
	// name and problem are of the last attempt that failed: who it said it is, if it
	// did, and why it is not registered.
	name, problem string
}

func newRegistry(dir string, waker Waker, log *slog.Logger) *registry {
	return &registry{
		dir: dir, log: log, waker: waker, registered: func(string) {}, times: upstreamTimes,
		sockets: map[string]*socket{}, drivers: map[string]*driver{}, waiting: map[string]map[pod.UID]bool{},
	}
}

// driver finds a registered driver. For one that is not there the error says why,
// and the pod is told when it comes.
func (r *registry) driver(name string, uid pod.UID) (*driver, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drivers[name]; d != nil {
		return d, nil
	}
	r.waitLocked(name, uid)
	// Upstream's words, and then what podd knows.
	err := fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	for _, path := range slices.Sorted(maps.Keys(r.sockets)) {
		if s := r.sockets[path]; s.problem != "" && (s.name == name || s.name == "") {
			return nil, fmt.Errorf("%w: what registers at %s is refused: %s", err, path, s.problem)
		}
	}
	return nil, fmt.Errorf("%w (it registers with a socket in %s)", err, r.dir)
}

// wait has a pod told when a driver registers: one that is registered may be away.
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

// forget ends a pod's wait for drivers.
func (r *registry) forget(uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, uids := range r.waiting {
		if delete(uids, uid); len(uids) == 0 {
			delete(r.waiting, name)
		}
	}
}

// add registers a driver, and returns who waited for it. A name that another socket
// holds is refused, as upstream does unless its version is higher.
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
	return nil
}

// remove forgets the driver that a socket has registered.
func (r *registry) remove(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, d := range r.drivers {
		if d.registrar == path {
			delete(r.drivers, name)
			r.log.Info("CSI driver unregistered", "driver", name, "endpoint", d.endpoint)
		}
	}
}

// fail notes why a socket is not registered; it says whether that is news.
func (r *registry) fail(s *socket, name string, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news = s.problem != err.Error()
	s.name, s.problem = name, err.Error()
	return news
}

// names are the registered drivers, sorted.
func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.drivers))
}
