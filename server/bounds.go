package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the ports, which are open to every local user.
const (
	// maxConnections of one port: watchers and scrapers keep theirs open.
	maxConnections = 64
	// portIdleTimeout of a keep-alive connection.
	portIdleTimeout = 30 * time.Second
	// maxLists is how many lists are served concurrently: each is as large as all
	// manifests.
	maxLists = 2
	// listTimeout is how long a request may wait to be served, and then how long the
	// client may take to read the response.
	listTimeout = 10 * time.Second
)

// connections limits those of one port. Above the limit, the connection that has been
// idle the longest is closed, so that a client that keeps many open does not lock out
// others. Only if all of them serve requests is the new one closed.
type connections struct {
	most int

	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when; guarded by mu
	busy map[net.Conn]struct{}  // guarded by mu
}

func newConnections(most int) *connections {
	return &connections{most: most, idle: map[net.Conn]time.Time{}, busy: map[net.Conn]struct{}{}}
}

// note is an http.Server.ConnState hook.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, conn)
	switch state {
	case http.StateNew:
		if len(c.idle)+len(c.busy) >= c.most {
			c.closeOneLocked(conn)
		}
		c.idle[conn] = time.Now()
	case http.StateActive:
		delete(c.idle, conn)
		c.busy[conn] = struct{}{}
	case http.StateIdle:
		c.idle[conn] = time.Now()
	default:
		delete(c.idle, conn)
	}
}

func (c *connections) closeOneLocked(last net.Conn) {
	var since time.Time
	for conn, at := range c.idle {
		if since.IsZero() || at.Before(since) {
			last, since = conn, at
		}
	}
	delete(c.idle, last)
	_ = last.Close() // its goroutine notices, and calls note
}

// few limits concurrent requests for lists; further ones wait for a while.
func (s *Server) few(next http.Handler) http.Handler { return s.place(s.lists, "lists of pods", next) }

// place lets a request in when there is a place; of says what for.
func (s *Server) place(places chan struct{}, of string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(listTimeout)
		defer patience.Stop()
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-patience.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many concurrent requests for "+of+"; try again", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		// A response that is not read would block other requests.
		if err := s.limit(w, listTimeout); err != nil {
			s.log.Debug("cannot set a write deadline", "path", r.URL.Path, "error", err)
		}
		next.ServeHTTP(w, r)
	})
}
