package server

import (
	"errors"
	"net/http"
	"time"

	"podd/internal/pod"
)

// Image is an image of the container runtime.
type Image struct {
	ID      string   `json:"id"`
	Names   []string `json:"names"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes, as the runtime counts it.
	Size uint64 `json:"size"`
	// Pods are those that use it, as namespace/name.
	Pods []string `json:"pods"`
	// FirstSeen and LastUsed are missing if unknown: podd has not seen a container of the image
	// since its start.
	FirstSeen *time.Time `json:"firstSeen,omitempty"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
	Pinned    bool       `json:"pinned,omitempty"`
	// Kept says why the image is not removed; empty if it may be.
	Kept string `json:"kept,omitempty"`
}

// Images is the response of /podd/v1/images, and of POST /podd/v1/images/remove.
type Images struct {
	Images []Image `json:"images"`
}

// images responds with the images of the runtime.
func (s *Server) images(w http.ResponseWriter, r *http.Request) {
	runtime, err := s.attachedRuntime()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	all, err := runtime.Images(r.Context())
	if err != nil {
		http.Error(w, "list images: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.respondJSON(w, r, Images{append([]Image{}, all...)})
}

// removeImages removes the image of ?image, or with ?unused all that nobody uses.
func (s *Server) removeImages(w http.ResponseWriter, r *http.Request) {
	name, unused := r.URL.Query().Get("image"), r.URL.Query().Has("unused")
	if (name == "") != unused {
		http.Error(w, "specify ?image=NAME or ?unused", http.StatusBadRequest)
		return
	}
	runtime, err := s.attachedRuntime()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	removed, err := runtime.RemoveImages(r.Context(), name)
	switch {
	case errors.Is(err, pod.ErrNotFound):
		http.Error(w, "no image "+name, http.StatusNotFound)
	case err != nil && len(removed) == 0:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		if err != nil {
			s.log.Warn("not all unused images could be removed", "error", err)
		}
		s.respondJSON(w, r, Images{append([]Image{}, removed...)})
	}
}
