package server

import (
	"net/http"
	"time"
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
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		s.log.Debug("cannot set the deadline of a response", "error", err)
	}
	s.json(w, r, Drained{true})
	if out.Flush() == nil {
		<-r.Context().Done()
	}
}
