package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
)

// api is what one listener serves.
type api struct {
	// name is the API's name in metrics and logs.
	name string
	// network and address are net.Listen's arguments; an empty address disables the listener.
	// field is the KubeletConfiguration field that sets the port.
	network, address, field string
	// tls is nil for plain HTTP.
	tls *tls.Config
	// guard applies to every request before routing, in this order.
	guard  []middleware
	groups []group
}

// group is a set of routes that share middleware, which runs in the order listed.
type group struct {
	middleware []middleware
	routes     []route
}

// route is an http.ServeMux pattern and its handler. A nil handler disables the route.
type route struct {
	pattern string
	handler http.Handler
}

// middleware wraps a handler.
type middleware func(next http.Handler) http.Handler

// handler assembles an API. A path without a route gets 404.
func (s *Server) handler(a api) http.Handler {
	mux := http.NewServeMux()
	for _, g := range a.groups {
		for _, r := range g.routes {
			if r.handler != nil {
				mux.Handle(r.pattern, wrap(r.handler, g.middleware))
			}
		}
	}
	mux.Handle("/", readOnly(http.HandlerFunc(http.NotFound)))
	return s.metrics.count(a.name, s.paths, limitBodyTime(wrap(mux, a.guard)))
}

func wrap(h http.Handler, all []middleware) http.Handler {
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

// firstWords returns the first path segment of every route.
func firstWords(all []api) map[string]bool {
	words := map[string]bool{}
	for _, a := range all {
		for _, g := range a.groups {
			for _, r := range g.routes {
				_, path, _ := strings.Cut(r.pattern, "/") // after the method
				first, _, _ := strings.Cut(path, "/")
				words[first] = true
			}
		}
	}
	return words
}

// newLimiter returns the limiter of the API's connections. It is nil for the socket,
// which only root can open.
func (a api) newLimiter() *connLimiter {
	switch {
	case a.network == "unix":
		return nil
	case a.tls != nil:
		return newConnLimiter(kubeletConnLimits)
	}
	return newConnLimiter(localConnLimits)
}

func (a api) listen() (net.Listener, error) {
	if a.network == "unix" {
		return listenUnix(a.address)
	}
	l, err := net.Listen(a.network, a.address)
	if err != nil {
		return nil, listenError(a.address, a.field, err)
	}
	return l, nil
}

func listenError(address, field string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s (%s): another process has this port; find it with `ss -ltnp`, or give %s another value, 0 for none: %w", address, field, field, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s (%s): this host has no such address: %w", address, field, err)
	}
	return fmt.Errorf("listen on %s (%s): %w", address, field, err)
}
