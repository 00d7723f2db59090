package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of the ports, which any local user may ask.
const (
	// maxConnections of one port: some watchers and scrapers keep theirs.
	maxConnections = 64
	// portIdleTimeout of a connection that was used and waits for its next request.
	portIdleTimeout = 30 * time.Second
	// maxLists are answered at the same time: each is as large as all manifests.
	maxLists = 2
	// listTimeout is how long a request waits for its turn, and then how long its
	// answer may take to be read.
	listTimeout = 10 * time.Second
)

// connections bounds those of one port. Where one more would be too many, the
// one that has been idle the longest is closed: whoever keeps many takes nothing
// from anybody else. Only when requests are under way on all of them is the new
// one closed.
type connections struct {
	most int

	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when; guarded by mu
	busy map[net.Conn]struct{}  // guarded by mu
}

func newConnections(most int) *connections {
	return &connections{most: most, idle: map[net.Conn]time.Time{}, busy: map[net.Conn]struct{}{}}
}

// note is for http.Server.ConnState.
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
	_ = last.Close() // its goroutine notices, and says so here
}

// few lets some requests at a time through, and holds back the others for a
// moment.
func (s *Server) few(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(listTimeout)
		defer patience.Stop()
		select {
		case s.lists <- struct{}{}:
			defer func() { <-s.lists }()
		case <-patience.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many concurrent requests for lists of pods; try again", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		// An answer that nobody reads would keep its place.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(listTimeout)); err != nil {
			s.log.Debug("cannot set a write deadline", "path", r.URL.Path, "error", err)
		}
		next.ServeHTTP(w, r)
	})
}
