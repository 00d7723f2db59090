package server

import (
	"net/http"
	"time"
)

// readOnly rejects methods other than GET and HEAD, although no handler changes anything.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// getOnly rejects methods other than GET, as the kubelet of 1.37 does for lists of pods,
// statistics, logs and profiles.
func getOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", "GET")
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// postOnly rejects other methods than POST, so that following a link changes nothing.
func postOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			http.Error(w, "only POST is allowed: this changes state", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bodyTimeout is how long a request's body may take to arrive. No handler reads a long one, but
// after the response the connection would wait for the rest.
const bodyTimeout = 2 * time.Second

// limitBodyTime bounds the wait for request bodies, including those of refused requests.
func limitBodyTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // every connection has one
		}
		next.ServeHTTP(w, r)
	})
}

// extendWriteDeadline gives an admitted request the write timeout that its response needs.
// Until then the shorter deadlines of untrusted connections apply.
func (s *Server) extendWriteDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.setWriteDeadline(w, writeTimeout); err != nil {
			s.log.Debug("cannot set a write deadline", "path", r.URL.Path, "error", err)
		}
		next.ServeHTTP(w, r)
	})
}

// noBody rejects requests with a body, which no handler reads.
func noBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "request bodies are not allowed", http.StatusRequestEntityTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
}
