package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"
)

// urlSource is a server of manifests, one for each side: it answers with a
// PodList of what scenarios serve.
type urlSource struct {
	Address string

	server *http.Server

	mu   sync.Mutex
	pods map[string]json.RawMessage // by scenario and file
	code int
}

// serveURL listens on loopback until Close.
func serveURL() (*urlSource, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve manifests: %w", err)
	}
	u := &urlSource{
		Address: "http://" + listener.Addr().String() + "/pods",
		pods:    map[string]json.RawMessage{}, code: http.StatusOK,
	}
	u.server = &http.Server{Handler: u}
	go func() { _ = u.server.Serve(listener) }()
	return u, nil
}

// Close ends the server.
func (u *urlSource) Close() error { return u.server.Close() }

func (u *urlSource) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(u.code)
	if u.code != http.StatusOK {
		return
	}
	items := []json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(u.pods)) {
		items = append(items, u.pods[key])
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "PodList", "items": items})
}

func (u *urlSource) set(key, manifest string) error {
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		return fmt.Errorf("serve %s: %w", key, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pods[key] = text
	return nil
}

func (u *urlSource) unset(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pods, key)
}

// answer sets the status of the answers to come; only 200 has pods.
func (u *urlSource) answer(code int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.code = code
}
