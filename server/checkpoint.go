package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"podd/internal/pod"
)

// checkpointGroup is the kubelet's /checkpoint/{namespace}/{pod}/{container} (KEP-2008). It
// saves the memory and the open files of a container's processes as an archive on this node.
func (s *Server) checkpointGroup() group {
	return group{middleware: []middleware{postOnly, noBody}, routes: []route{
		{"/checkpoint/{namespace}/{pod}/{container}", s.stream(s.limitSessions(s.deferWriteDeadline(s.checkpoint)))},
	}}
}

func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	p, ok := s.requestedPod(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	if c, _ := pod.ContainerSpec(&p.Spec, name); c == nil {
		http.Error(w, fmt.Sprintf("container %v does not exist", name), http.StatusNotFound)
		return
	}
	var timeout time.Duration
	if all := r.URL.Query()["timeout"]; len(all) > 0 {
		seconds, err := strconv.ParseInt(all[len(all)-1], 10, 32)
		if err != nil || seconds < 0 {
			http.Error(w, "cannot parse value of timeout parameter", http.StatusNotFound) // upstream's code
			return
		}
		timeout = time.Duration(seconds) * time.Second
	}
	location := filepath.Join(s.config.Kubelet.CheckpointDir,
		fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", p.Name, p.Namespace, name, time.Now().Format(time.RFC3339)))
	err := fmt.Errorf("container %q is not running", name)
	if c := pod.ContainerStatus(&p.Status, name); c != nil && c.State.Running != nil {
		var runtime Runtime
		if runtime, err = s.attachedRuntime(); err == nil {
			err = runtime.Checkpoint(r.Context(), pod.RuntimeID(c.ContainerID), location, timeout)
		}
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", p.Namespace, p.Name, name, err), http.StatusInternalServerError)
		return
	}
	writeJSON(w, map[string][]string{"items": {location}})
}

// writeJSON writes a small response. It ignores write errors: the client has gone.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(v)
}
