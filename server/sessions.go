package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Streams are the streams of a session in a container.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Sessions that last: commands in containers, terminals, forwarded ports. The runtime has a
// server of its own for them on loopback, which speaks SPDY and WebSocket. podd finds the
// container and then passes bytes.
const (
	// maxSessions limits the sessions of one API. Each takes one connection on either side.
	maxSessions = 256
	// maxCommand limits the total length of a command's arguments. The kernel limits it, too.
	maxCommand = 128 << 10
)

// sessionsGroup has the kubelet's paths with and without a pod's UID.
func (s *Server) sessionsGroup() group {
	both := func(path, rest string, h http.HandlerFunc) []route {
		h = s.stream(s.limitSessions(h)).ServeHTTP
		return []route{{path + "/{namespace}/{pod}" + rest, h}, {path + "/{namespace}/{pod}/{uid}" + rest, h}}
	}
	routes := append(both("/exec", "/{container}", s.exec), both("/attach", "/{container}", s.attach)...)
	routes = append(routes, both("/run", "/{container}", s.deferWriteDeadline(s.run))...)
	return group{middleware: []middleware{noBody}, routes: append(routes, both("/portForward", "", s.portForward)...)}
}

// limitSessions limits the number of concurrent sessions.
func (s *Server) limitSessions(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "only GET and POST are allowed", http.StatusMethodNotAllowed)
			return
		}
		select {
		case s.sessions <- struct{}{}:
			defer func() { <-s.sessions }()
			next(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d sessions are open: close some", maxSessions), http.StatusServiceUnavailable)
		}
	}
}

// exec serves /exec: a command in a container.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	streams, err := streamsOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command, err := commandOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	runtime, id, ok := s.requestedContainer(w, r)
	if !ok {
		return
	}
	target, err := runtime.Exec(r.Context(), id, command, streams)
	s.proxySession(w, r, target, err)
}

// attach serves /attach: the streams of a container's own process.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	streams, err := streamsOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	runtime, id, ok := s.requestedContainer(w, r)
	if !ok {
		return
	}
	target, err := runtime.Attach(r.Context(), id, streams)
	s.proxySession(w, r, target, err)
}

// portForward serves /portForward: connections to ports of a pod. The streams name the ports;
// for a WebSocket the query does.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	var ports []int32
	for _, text := range r.URL.Query()["port"] {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			http.Error(w, fmt.Sprintf("port %q is not a port from 1 to 65535", text), http.StatusBadRequest)
			return
		}
		ports = append(ports, int32(n))
	}
	p, ok := s.requestedPod(w, r)
	if !ok {
		return
	}
	runtime, err := s.attachedRuntime()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, end := s.contextWhilePodRuns(r.Context(), p)
	defer end()
	target, err := runtime.PortForward(ctx, p, ports)
	s.proxySession(w, r.WithContext(ctx), target, err)
}

// run serves /run: it runs a command in a container and returns its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST is allowed", http.StatusMethodNotAllowed)
		return
	}
	runtime, id, ok := s.requestedContainer(w, r)
	if !ok {
		return
	}
	command := r.URL.Query().Get("cmd")
	if command == "" || len(command) > maxCommand {
		http.Error(w, "give the command in cmd, its words separated by spaces", http.StatusBadRequest)
		return
	}
	out, err := runtime.Run(r.Context(), id, strings.Fields(command))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(out)
}

// streamsOf parses a query's streams, as upstream's remotecommand.NewOptions does.
func streamsOf(q url.Values) (Streams, error) {
	o := Streams{Stdin: q.Get("input") == "1", Stdout: q.Get("output") == "1", Stderr: q.Get("error") == "1", TTY: q.Get("tty") == "1"}
	if o.TTY {
		o.Stderr = false // a terminal has one stream
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

func commandOf(q url.Values) ([]string, error) {
	command, size := q["command"], 0
	for _, word := range command {
		size += len(word)
	}
	if len(command) == 0 || size > maxCommand {
		return nil, fmt.Errorf("give a command, of at most %d KiB", maxCommand>>10)
	}
	return command, nil
}

// requestedPod returns the pod that a path names. If there is none, it writes the error
// response. A podd that has just started cannot tell yet whether a pod exists.
func (s *Server) requestedPod(w http.ResponseWriter, r *http.Request) (*v1.Pod, bool) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	p := s.podNamed(namespace, name)
	switch uid := r.PathValue("uid"); {
	case p == nil && s.config.Expects != nil && s.config.Expects(namespace, name):
		http.Error(w, "podd has just started and does not know this pod yet: try again in some seconds (/readyz?verbose says whether a source of pods has not answered)", http.StatusServiceUnavailable)
	case p == nil || uid != "" && uid != string(p.UID):
		http.Error(w, "pod does not exist", http.StatusNotFound)
	default:
		return p, true
	}
	return nil, false
}

// requestedContainer returns the ID of the running container that a path names. If there is
// none, it writes the error response.
func (s *Server) requestedContainer(w http.ResponseWriter, r *http.Request) (rt Runtime, id string, ok bool) {
	p, ok := s.requestedPod(w, r)
	if !ok {
		return nil, "", false
	}
	rt, err := s.attachedRuntime()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, "", false
	}
	// Ask the runtime. The pod's status lags behind by the time it takes to compute.
	name := r.PathValue("container")
	id, err = rt.RunningContainerID(r.Context(), p, name)
	switch {
	case errors.Is(err, pod.ErrNotFound):
		http.Error(w, fmt.Sprintf("container not found (%q)", name), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return rt, id, err == nil
}

// contextWhilePodRuns returns a context that ends with the pod. Without it, a connection to a pod
// without a sandbox would stay open and lead nowhere.
func (s *Server) contextWhilePodRuns(ctx context.Context, p *v1.Pod) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	changes, stop := s.subscribe()
	go func() {
		defer stop()
		for {
			now := s.podNamed(p.Namespace, p.Name)
			if now == nil || now.UID != p.UID || pod.IsPhaseTerminal(now.Status.Phase) {
				cancel()
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// proxySession passes a request on to the runtime's own server, and returns when the session ends.
func (s *Server) proxySession(w http.ResponseWriter, r *http.Request, target *url.URL, err error) {
	if err != nil {
		code := http.StatusInternalServerError
		if errors.Is(err, pod.ErrNotFound) {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	if err := errors.Join(http.NewResponseController(w).SetReadDeadline(time.Time{}), s.setWriteDeadline(w, 0)); err != nil {
		s.log.Debug("cannot lift the deadlines of a session", "path", r.URL.Path, "error", err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: sessionTransport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, target.Host
			p.Out.Header.Del("Authorization") // was meant for podd
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.log.Debug("a session was broken off", "path", r.URL.Path, "error", err)
			http.Error(w, "the container runtime does not respond: "+err.Error(), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// sessionTransport makes one connection for each session. It ignores the environment's proxy,
// which is not meant for loopback.
var sessionTransport = &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute}
