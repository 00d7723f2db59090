package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// verbosity is the kubelet's /debug/flags/v. PUT with a number sets the log's verbosity until
// podd restarts.
func (s *Server) verbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.Error(w, "unsupported http method", http.StatusNotAcceptable)
		return
	}
	const most = 16
	body, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	level, err := strconv.ParseUint(strings.TrimSpace(string(body)), 10, 8)
	if err != nil || s.config.Kubelet.SetVerbosity == nil {
		http.Error(w, fmt.Sprintf("failed set klog.logging.verbosity %q: give a number such as 4", body), http.StatusBadRequest)
		return
	}
	s.config.Kubelet.SetVerbosity(int(level))
	s.log.Info("the log's verbosity was set", "v", level, "by", r.RemoteAddr)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", level)
}
