package kubeletapi

import (
	"net/http"
	"strings"
)

// access is what a request wants: a verb on a subresource of this node.
type access struct {
	verb string
	// subresources are tried in their order; one that is allowed is enough.
	subresources []string
}

// fineGrained are the paths with a subresource of their own beside proxy, and dedicated those with a
// subresource instead of it; every other path is proxy.
var (
	fineGrained = []struct{ path, subresource string }{
		{"/pods", "pods"}, {"/healthz", "healthz"}, {"/configz", "configz"}, {"/runningpods", "pods"},
	}
	dedicated = []struct{ path, subresource string }{
		{"/stats", "stats"}, {"/metrics", "metrics"}, {"/logs", "log"}, {"/checkpoint", "checkpoint"}, {"/statusz", "statusz"}, {"/flagz", "configz"},
	}
)

// verbs are by HTTP method; another method has the empty verb, which nobody is granted.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// accessOf returns what a request wants.
func accessOf(r *http.Request) access {
	a := access{verb: verbs[r.Method]}
	for _, f := range fineGrained {
		if below(r.URL.Path, f.path) {
			a.subresources = append(a.subresources, f.subresource)
			break
		}
	}
	for _, o := range dedicated {
		if below(r.URL.Path, o.path) {
			a.subresources = append(a.subresources, o.subresource)
			return a
		}
	}
	a.subresources = append(a.subresources, "proxy")
	return a
}

// below says that a path is another one, or below it.
func below(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '/')
}
