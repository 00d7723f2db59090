package server

import (
	"encoding/json"
	"net/http"
)

// serveJSON responds with a value as JSON.
func (s *Server) serveJSON(value func(*http.Request) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.respondJSON(w, r, value(r)) })
}

// respondJSON writes a response. ?pretty indents it.
func (s *Server) respondJSON(w http.ResponseWriter, r *http.Request, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	e := json.NewEncoder(w)
	if _, pretty := r.URL.Query()["pretty"]; pretty {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		s.log.Debug("cannot send response", "path", r.URL.Path, "error", err)
	}
}
