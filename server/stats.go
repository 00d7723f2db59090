package server

import (
	"net/http"
	"strconv"
)

// summary responds with the statistics of the node and its pods.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	cpuAndMemory, _ := strconv.ParseBool(r.URL.Query().Get("only_cpu_and_memory"))
	var answer any
	runtime, err := s.attachedRuntime()
	if err == nil {
		answer, err = runtime.Summary(r.Context(), !cpuAndMemory)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.respondJSON(w, r, answer)
}
