package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Retried is the response of POST /retry.
type Retried struct {
	// Pods are the pods that had their back-off reset, as namespace/name.
	Pods []string `json:"pods"`
}

// retry resets the back-off of ?pod=namespace/name, which may be repeated. With ?all it resets
// that of all waiting pods, or of those in ?namespace. If one of the named pods does not exist,
// nothing changes.
func (s *Server) retry(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	names, all, namespace := query["pod"], query.Has("all"), query.Get("namespace")
	if all == (len(names) > 0) {
		http.Error(w, "specify ?pod=namespace/name or ?all", http.StatusBadRequest)
		return
	}
	missing := slices.Clone(names)
	pods := s.config.Pods.Pods()
	for _, p := range pods {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == p.Namespace+"/"+p.Name })
	}
	if len(missing) > 0 {
		http.Error(w, "no pod "+strings.Join(missing, ", "), http.StatusNotFound)
		return
	}
	answer := Retried{Pods: []string{}}
	for _, p := range pods {
		name := p.Namespace + "/" + p.Name
		wanted := slices.Contains(names, name) || all && (namespace == "" || namespace == p.Namespace) && waitingOrRejected(p)
		if wanted && s.config.Retry(p.UID) && !slices.Contains(answer.Pods, name) {
			answer.Pods = append(answer.Pods, name)
		}
	}
	s.log.Info("retrying pods on request", "pods", fmt.Sprint(answer.Pods))
	s.respondJSON(w, r, answer)
}

// waitingOrRejected reports whether a container of the pod is waiting, for whatever reason, or
// whether the node rejected the pod.
func waitingOrRejected(p *v1.Pod) bool {
	switch p.Status.Phase {
	case v1.PodFailed: // a completed pod waits for nothing, even if all its containers are gone
		return len(p.Status.ContainerStatuses) == 0 && !pod.IsTerminationReason(p.Status.Reason)
	case v1.PodSucceeded:
		return false
	}
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	return slices.ContainsFunc(all, func(cs v1.ContainerStatus) bool { return cs.State.Waiting != nil })
}
