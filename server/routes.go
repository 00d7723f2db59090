package server

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Listing is the answer of /podd/v1/pods: all that podd ps shows.
type Listing struct {
	Pods     []PodInfo     `json:"pods"`
	Problems []pod.Problem `json:"problems"`
}

// PodInfo is one pod and where its manifest is found.
type PodInfo struct {
	Pod    *v1.Pod `json:"pod"`
	Origin string  `json:"origin,omitempty"`
	// Causes are Config.Causes.
	Causes map[string]string `json:"causes,omitempty"`
}

func (s *Server) healthzRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	return s.metrics.count("healthz", s.ownHost(readOnly(mux)))
}

func (s *Server) readOnlyRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addReadOnly(mux)
	s.addLists(mux, maskedPods, s.few)
	return s.metrics.count("readonly", s.ownHost(readOnly(mux)))
}

func (s *Server) socketRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addReadOnly(mux)
	s.addLists(mux, podList, func(all http.HandlerFunc) http.HandlerFunc { return all })
	if s.config.Configz != nil {
		mux.HandleFunc("/configz", func(w http.ResponseWriter, r *http.Request) { s.json(w, r, s.config.Configz()) })
	}
	mux.HandleFunc("/podd/v1/pods", s.watchable(func(*http.Request) any { return s.listing() }))
	mux.HandleFunc("/podd/v1/problems", func(w http.ResponseWriter, r *http.Request) { s.json(w, r, s.problems()) })
	mux.HandleFunc("/podd/v1/events", s.watchable(s.events))
	mux.HandleFunc("/podd/v1/version", func(w http.ResponseWriter, r *http.Request) { s.json(w, r, s.config.Version) })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	all := http.NewServeMux()
	all.Handle("/", readOnly(mux))
	if s.config.Retry != nil {
		all.Handle("/retry", noBody(http.HandlerFunc(s.retry)))
	}
	return s.metrics.count("socket", all)
}

func (s *Server) addHealth(mux *http.ServeMux) {
	for _, e := range []struct {
		name  string
		least Level
	}{{"livez", Live}, {"healthz", Healthy}, {"readyz", Ready}} {
		h := s.health.endpoint(e.name, e.least)
		mux.Handle("/"+e.name, h)
		mux.Handle("/"+e.name+"/", h)
	}
}

// addReadOnly adds what the read-only port and the socket answer alike.
func (s *Server) addReadOnly(mux *http.ServeMux) {
	s.addHealth(mux)
	for path, gather := range map[string]prometheus.Gatherer{"/metrics": s.config.Gather, "/metrics/probes": s.config.GatherProbes} {
		if gather != nil {
			mux.Handle(path, promhttp.HandlerFor(gather, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second}))
		}
	}
}

// addLists adds the lists of pods: whole or masked, bounded or not.
func (s *Server) addLists(mux *http.ServeMux, list func([]*v1.Pod) *v1.PodList, bound func(http.HandlerFunc) http.HandlerFunc) {
	mux.HandleFunc("/pods", bound(func(w http.ResponseWriter, r *http.Request) { s.json(w, r, list(s.config.Pods.Pods())) }))
	running := bound(func(w http.ResponseWriter, r *http.Request) { s.json(w, r, runningPods(s.config.Pods.Pods())) })
	mux.HandleFunc("/runningpods", running)
	mux.HandleFunc("/runningpods/", running)
}

// readOnly refuses what would change something, though nothing behind it does.
func readOnly(next http.Handler) http.Handler {
	return noBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this server answers GET and HEAD only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// noBody refuses requests with a body. Nobody here reads one, and waiting for
// the end of a slow one would hold the connection.
func noBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "this server takes no request bodies", http.StatusRequestEntityTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// podList is the kubelet's GET /pods: kinds are left to the list.
func podList(pods []*v1.Pod) *v1.PodList {
	list := &v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    make([]v1.Pod, 0, len(pods)),
	}
	for _, p := range pods {
		item := *p
		item.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, item)
	}
	return list
}

// runningPods is the kubelet's GET /runningpods: pods that have a running
// container, with no more than names and images.
func runningPods(pods []*v1.Pod) *v1.PodList {
	list := podList(nil)
	for _, p := range pods {
		item := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
		for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
			if cs.State.Running != nil {
				item.Spec.Containers = append(item.Spec.Containers, v1.Container{Name: cs.Name, Image: cs.Image})
			}
		}
		if len(item.Spec.Containers) > 0 {
			list.Items = append(list.Items, item)
		}
	}
	return list
}

func (s *Server) problems() []pod.Problem {
	if s.config.Problems == nil {
		return []pod.Problem{}
	}
	return append([]pod.Problem{}, s.config.Problems()...)
}

func (s *Server) listing() Listing {
	l := Listing{Pods: []PodInfo{}, Problems: s.problems()}
	for _, p := range s.config.Pods.Pods() {
		info := PodInfo{Pod: p, Origin: s.config.Pods.Origin(p.UID)}
		if s.config.Causes != nil {
			info.Causes = s.config.Causes(p)
		}
		l.Pods = append(l.Pods, info)
	}
	return l
}

// events answers with the events of ?namespace and ?name. The name may be the
// manifest's own, to which a static pod's has the node's name added.
func (s *Server) events(r *http.Request) any {
	list := v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []v1.Event{}}
	if s.config.Events == nil {
		return list
	}
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	found := s.config.Events(namespace, name)
	if len(found) == 0 && name != "" && s.config.NodeName != "" {
		found = s.config.Events(namespace, name+"-"+s.config.NodeName)
	}
	for _, e := range found {
		list.Items = append(list.Items, *e)
	}
	return list
}

// json writes one answer. ?pretty indents it.
func (s *Server) json(w http.ResponseWriter, r *http.Request, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	e := json.NewEncoder(w)
	if _, pretty := r.URL.Query()["pretty"]; pretty {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		s.log.Debug("answer not sent", "path", r.URL.Path, "error", err)
	}
}

const (
	// watchGap is the least time between two answers to a watcher.
	watchGap = 100 * time.Millisecond
	// watchPoll is how often a watcher is answered when nobody tells of changes.
	watchPoll = 2 * time.Second
)

// watchable answers once, or with ?watch with one JSON value a line, a new one
// after each change, until the client goes.
func (s *Server) watchable(answer func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, watch := r.URL.Query()["watch"]; !watch {
			s.json(w, r, answer(r))
			return
		}
		changed, stop := s.subscribe()
		defer stop()
		out := http.NewResponseController(w)
		w.Header().Set("Content-Type", "application/json")
		for {
			// Whoever does not read for that long has gone.
			deadline := time.Now().Add(writeTimeout)
			err := out.SetWriteDeadline(deadline)
			if err == nil {
				err = json.NewEncoder(w).Encode(answer(r))
			}
			if err == nil {
				err = out.Flush()
			}
			if err != nil || !wait(r, time.After(watchGap), nil) || !wait(r, nil, changed) {
				return
			}
		}
	}
}

// wait returns true when either channel received, false when the client went.
func wait(r *http.Request, a <-chan time.Time, b <-chan struct{}) bool {
	select {
	case <-a:
	case <-b:
	case <-r.Context().Done():
		return false
	}
	return true
}

// subscribe joins the sources of changes into one channel.
func (s *Server) subscribe() (<-chan struct{}, func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	poke := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	for _, source := range s.config.Changes {
		c, stop := source() // now, so that no change after the first answer is missed
		go func() {
			defer stop()
			for {
				select {
				case <-c:
					poke()
				case <-done:
					return
				}
			}
		}()
	}
	if len(s.config.Changes) == 0 {
		go func() {
			tick := time.NewTicker(watchPoll)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					poke()
				case <-done:
					return
				}
			}
		}()
	}
	return out, func() { close(done) }
}
