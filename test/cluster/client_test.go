package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// store is an apiserver as far as a Client knows one.
type store struct {
	mu      sync.Mutex
	objects map[string]Object
	asked   []string
	refuse  bool
	stays   int // how often an object that was deleted is still to be seen
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	_, there := s.objects[r.URL.Path]
	if !there && s.stays > 0 && r.Method == http.MethodGet {
		s.stays--
		return
	}
	var object Object
	_ = json.NewDecoder(r.Body).Decode(&object)
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		w.WriteHeader(http.StatusUnauthorized)
	case s.refuse:
		http.Error(w, "field is immutable", http.StatusUnprocessableEntity)
	case r.Method == http.MethodPost:
		_, name, _ := locate(object)
		s.objects[r.URL.Path+"/"+name] = object
	case !there:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path] = object
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
	}
}

func serve(t *testing.T) (*store, *Client) {
	t.Helper()
	s := &store{objects: map[string]Object{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &Client{url: server.URL, token: "token", http: server.Client()}
}

func document(kind, namespace, name string) Object {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return Object{"kind": kind, "metadata": metadata}
}

func TestAnObjectIsMadeOrReplacedWhereItsKindLives(t *testing.T) {
	for _, c := range []struct{ kind, namespace, want string }{
		{"ConfigMap", "", "/api/v1/namespaces/default/configmaps/a"},
		{"Secret", "shop", "/api/v1/namespaces/shop/secrets/a"},
		{"Pod", "", "/api/v1/namespaces/default/pods/a"},
		{"PersistentVolume", "", "/api/v1/persistentvolumes/a"},
		{"CSIDriver", "", "/apis/storage.k8s.io/v1/csidrivers/a"},
	} {
		s, client := serve(t)
		o := document(c.kind, c.namespace, "a")
		for range 2 {
			if err := client.Apply(t.Context(), o); err != nil {
				t.Fatalf("%s: %v", c.kind, err)
			}
		}
		collection := strings.TrimSuffix(c.want, "/a")
		if want := []string{"PUT " + c.want, "POST " + collection, "PUT " + c.want}; !slices.Equal(s.asked, want) {
			t.Errorf("%s: asked for %q, want %q", c.kind, s.asked, want)
		}
		if err := client.Delete(t.Context(), o); err != nil || len(s.objects) != 0 {
			t.Errorf("%s: %v after its removal, %v", c.kind, s.objects, err)
		}
		if err := client.Delete(t.Context(), o); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: a second removal: %v, want that there is none", c.kind, err)
		}
	}
}

func TestANewObjectTakesOneRequest(t *testing.T) {
	s, client := serve(t)
	if err := client.Create(t.Context(), document("Pod", "", "a")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"POST /api/v1/namespaces/default/pods"}; !slices.Equal(s.asked, want) || len(s.objects) != 1 {
		t.Errorf("asked for %q, want %q; there is %v", s.asked, want, s.objects)
	}
	if err := client.Create(t.Context(), document("Widget", "", "a")); err == nil {
		t.Error("an object of an unknown kind was made")
	}
}

func TestWhatTheAPIServerSaysIsTheError(t *testing.T) {
	s, client := serve(t)
	s.refuse = true
	if err := client.Apply(t.Context(), document("Pod", "", "a")); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("got %v", err)
	}
	for _, o := range []Object{document("Widget", "", "a"), document("Pod", "", ""), {}} {
		if err := client.Apply(t.Context(), o); err == nil || !strings.Contains(err.Error(), "cannot be given") {
			t.Errorf("%v: got %v, want that it cannot be given", o, err)
		}
	}
}

func TestGoneWaitsUntilTheObjectIsGone(t *testing.T) {
	s, client := serve(t)
	s.stays = 2
	if err := client.Gone(t.Context(), document("Pod", "", "a")); err != nil || s.stays != 0 || len(s.asked) != 3 {
		t.Errorf("got %v after %q", err, s.asked)
	}
	s.objects["/api/v1/namespaces/default/pods/a"] = Object{}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Gone(ctx, document("Pod", "", "a")); err == nil {
		t.Error("a pod that is there is gone")
	}
}
