package server

import (
	"net/http"
	"time"
)

// Limits of the ports, which are open to every local user.
const (
	// maxConnections limits the unauthenticated connections to one port. Watchers and scrapers
	// keep theirs open.
	maxConnections = 64
	// maxFollowers is how many logs can be followed at the same time.
	maxFollowers = 192
	// portIdleTimeout is how long a keep-alive connection may stay idle.
	portIdleTimeout = 30 * time.Second
	// maxLists is how many lists are served concurrently. Each list is as large as all
	// manifests together.
	maxLists = 2
	// listTimeout is how long a request may wait for its turn, and then how long the client may
	// take to read the response.
	listTimeout = 10 * time.Second
)

// limitLists limits concurrent requests for lists. A request over the limit waits up to
// listTimeout.
func (s *Server) limitLists(next http.Handler) http.Handler {
	return s.limitConcurrency(s.lists, "lists of pods", next)
}

// limitConcurrency holds a request until one of the slots is free. of names the requested thing
// in the error message.
func (s *Server) limitConcurrency(slots chan struct{}, of string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(listTimeout)
		defer timer.Stop()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-timer.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many concurrent requests for "+of+"; try again", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		// A client that does not read its response would block other requests.
		if err := s.setWriteDeadline(w, listTimeout); err != nil {
			s.log.Debug("cannot set a write deadline", "path", r.URL.Path, "error", err)
		}
		next.ServeHTTP(w, r)
	})
}
