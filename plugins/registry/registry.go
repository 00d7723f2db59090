package registry

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"podd/internal/wake"
)

// Plugin is what a registrar says about its plugin.
type Plugin struct {
	Name string
	// Endpoint is the path of the plugin's own socket.
	Endpoint string
	// Socket is the path of the registrar's socket.
	Socket   string
	Versions []string // those that the plugin supports; the handler checks them
}

// Handler serves the plugins of one type.
type Handler interface {
	// Register registers a plugin. It may block until the plugin has responded; ctx ends
	// when the plugin's socket is removed. The registrar gets the error, and is asked again
	// later.
	Register(ctx context.Context, p *Plugin) error
	// Deregister undoes a Register that returned no error. It gets the same pointer.
	Deregister(p *Plugin)
}

// times are the timeouts and the backoff of a registration.
type times struct {
	dial, info, notify time.Duration
	retry              wake.Backoff
}

var upstreamTimes = times{
	dial: 10 * time.Second, info: time.Second, notify: 30 * time.Second,
	retry: wake.Backoff{Initial: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second},
}

// Registry registers plugins. Create it with New. All methods are safe for concurrent use.
type Registry struct {
	dir      string
	handlers map[string]Handler
	log      *slog.Logger
	times    times

	mu      sync.Mutex // guards what follows
	sockets map[string]*socket
}

// socket is a registrar's socket, as long as its file exists.
type socket struct {
	file   fs.FileInfo
	cancel context.CancelFunc
	// name and problem are from the last failed attempt: the plugin's name, if known, and why it
	// is not registered.
	name, problem string
	// plugin is registered with handler; nil for none.
	plugin  *Plugin
	handler Handler
}

// New creates the directory, which plugins expect to exist. It starts nothing.
func New(dir string, log *slog.Logger) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return &Registry{dir: dir, handlers: map[string]Handler{}, log: log, times: upstreamTimes, sockets: map[string]*socket{}}, nil
}

// Handle makes h register the plugins of a type (registration.CSIPlugin and its like). A
// plugin of a type without a handler is rejected. Handle must not be called after Run.
func (r *Registry) Handle(pluginType string, h Handler) { r.handlers[pluginType] = h }

// Dir returns the directory in which plugins register.
func (r *Registry) Dir() string { return r.dir }

// Problem says why a plugin of that name is not registered: the socket of its registrar,
// and what is wrong. A registrar that has not given a name may be that plugin's. Both are
// empty if no registration has failed.
func (r *Registry) Problem(name string) (socket, problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(r.sockets)) {
		if s := r.sockets[path]; s.problem != "" && (s.name == name || s.name == "") {
			return path, s.problem
		}
	}
	return "", ""
}

// recordFailure records why a socket is not registered; changed says whether that has changed.
func (r *Registry) recordFailure(s *socket, name string, err error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = s.problem != err.Error()
	s.name, s.problem = name, err.Error()
	return changed
}

// deregister deregisters the plugin of a socket, if it is registered.
func (r *Registry) deregister(s *socket) {
	r.mu.Lock()
	p := s.plugin
	s.plugin = nil
	r.mu.Unlock()
	if p != nil {
		s.handler.Deregister(p)
	}
}
