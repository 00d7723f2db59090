package server

import (
	"net/http"
)

// Drained is the response of POST /podd/v1/drain.
type Drained struct {
	Drained bool `json:"drained"`
}

// drain ends all pods and responds when none is left. For as long as the client then
// keeps the connection open, none is started; when it disconnects, at whatever time,
// those that are desired start again.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	s.log.Info("stopping all pods on request")
	select {
	case <-s.config.Drain(r.Context()):
	case <-r.Context().Done():
		return
	}
	if err := s.limit(w, writeTimeout); err != nil {
		s.log.Debug("cannot set the deadline of a response", "error", err)
	}
	s.json(w, r, Drained{true})
	if http.NewResponseController(w).Flush() == nil {
		<-r.Context().Done()
	}
}
