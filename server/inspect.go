package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// inspectTimeout bounds the runtime calls for one response. The command line waits longer than
// that.
const inspectTimeout = 8 * time.Second

// Volumes is the response of /podd/v1/volumes.
type Volumes struct {
	Volumes []Volume `json:"volumes"`
}

// Volume says where one of a pod's volumes is on the host.
type Volume struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// Source and FSType describe the mount at Path, if there is one.
	Source string `json:"source,omitempty"`
	FSType string `json:"fsType,omitempty"`
	// PersistentVolume is the volume that the claim is bound to.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Message says why there is no path.
	Message string `json:"message,omitempty"`
}

// volumes responds with the volumes of the pod ?uid. The list is empty before a Runtime is
// attached.
func (s *Server) volumes(w http.ResponseWriter, r *http.Request) {
	p := s.podByUID(w, r)
	if p == nil {
		return
	}
	all := []Volume{}
	if runtime, err := s.attachedRuntime(); err == nil {
		all = append(all, runtime.Volumes(p)...)
	}
	s.respondJSON(w, r, Volumes{all})
}

// inspect responds with what podd gave the runtime for the pod ?uid, or for one ?container of
// it.
func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	p := s.podByUID(w, r)
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
		s.respondJSON(w, r, answer)
	}
}

// podByUID returns the pod ?uid. If there is none, it writes the error response and returns nil.
func (s *Server) podByUID(w http.ResponseWriter, r *http.Request) *v1.Pod {
	uid := r.URL.Query().Get("uid")
	for _, p := range s.config.Pods.Pods() {
		if string(p.UID) == uid {
			return p
		}
	}
	http.Error(w, "no such pod: it may just have been removed", http.StatusNotFound)
	return nil
}
