package kubeletapi

import "net/http"

// access is what a request asks for: a verb on a subresource of this node.
type access struct {
	verb string
	// subresources are tried in order. One that is allowed is enough.
	subresources []string
}

// verbs are by HTTP method; another method has the empty verb, which nobody is granted.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// accessOf returns what a request wants.
func (g *Guard) accessOf(r *http.Request) access {
	return access{verb: verbs[r.Method], subresources: g.cfg.Subresources(r.URL.Path)}
}
