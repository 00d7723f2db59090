package server

import (
	"errors"
	"net/http"

	"podd/internal/pod"
)

var errHasEnded = errors.New("the pod has run to its end: podd retry runs it once more")

// Restarted is the response of POST /podd/v1/restart.
type Restarted struct {
	Restarted bool `json:"restarted"`
}

// restart restarts the containers of ?pod=namespace/name, or only ?container of it. It responds
// once that is requested.
func (s *Server) restart(w http.ResponseWriter, r *http.Request) {
	name, container := r.URL.Query().Get("pod"), r.URL.Query().Get("container")
	if name == "" {
		http.Error(w, "specify ?pod=namespace/name", http.StatusBadRequest)
		return
	}
	for _, p := range s.config.Pods.Pods() {
		if p.Namespace+"/"+p.Name != name {
			continue
		}
		err := errHasEnded
		if !pod.IsPhaseTerminal(p.Status.Phase) {
			err = s.config.Restart(p.UID, container)
		}
		if err != nil {
			http.Error(w, "cannot restart "+name+": "+err.Error(), http.StatusConflict)
			return
		}
		s.log.Info("restarting a pod on request", "pod", name, "uid", p.UID, "container", container)
		s.respondJSON(w, r, Restarted{true})
		return
	}
	http.Error(w, "no pod "+name, http.StatusNotFound)
}
