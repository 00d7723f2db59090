package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// inspectTimeout bounds what the runtime is asked for one answer; the command line
// waits longer than that.
const inspectTimeout = 8 * time.Second

// Volumes is the answer of /podd/v1/volumes.
type Volumes struct {
	Volumes []Volume `json:"volumes"`
}

// Volume is where one of a pod's volumes is on the host.
type Volume struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// Source and FSType are those of the mount at Path, if there is one.
	Source string `json:"source,omitempty"`
	FSType string `json:"fsType,omitempty"`
	// PersistentVolume is what the volume's claim is bound to.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Message says why there is no path.
	Message string `json:"message,omitempty"`
}

// volumes answers with the volumes of the pod ?uid: none before there is a Runtime.
func (s *Server) volumes(w http.ResponseWriter, r *http.Request) {
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	all := []Volume{}
	if runtime, err := s.attachedRuntime(); err == nil {
		all = append(all, runtime.Volumes(p)...)
	}
	s.json(w, r, Volumes{all})
}

// inspect answers with what the runtime was given for the pod ?uid, or for one
// ?container of it.
func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	container := r.URL.Query().Get("container")
	if c, _ := pod.ContainerSpec(&p.Spec, container); c == nil && container != "" {
		http.Error(w, "the pod has no such container", http.StatusNotFound)
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), inspectTimeout)
	defer stop()
	var answer any
	runtime, err := s.attachedRuntime()
	if err == nil {
		answer, err = runtime.Inspect(ctx, p, container)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		s.json(w, r, answer)
	}
}

// podOf is the pod ?uid; without one it answers itself.
func (s *Server) podOf(w http.ResponseWriter, r *http.Request) *v1.Pod {
	uid := r.URL.Query().Get("uid")
	for _, p := range s.config.Pods.Pods() {
		if string(p.UID) == uid {
			return p
		}
	}
	http.Error(w, "no such pod: it may just have been removed", http.StatusNotFound)
	return nil
}
