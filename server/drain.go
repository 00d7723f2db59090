package server

import (
	"net/http"
)

// Drained is the response of POST /podd/v1/drain.
type Drained struct {
	Drained bool `json:"drained"`
}

// drain stops all pods and responds when none is left. No pod starts while the client keeps the
// connection open after that. When the client disconnects, at any time, the desired pods start
// again.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	s.log.Info("stopping all pods on request")
	select {
	case <-s.config.Drain(r.Context()):
	case <-r.Context().Done():
		return
	}
	if err := s.setWriteDeadline(w, writeTimeout); err != nil {
		s.log.Debug("cannot set the deadline of a response", "error", err)
	}
	s.respondJSON(w, r, Drained{true})
	if http.NewResponseController(w).Flush() == nil {
		<-r.Context().Done()
	}
}
