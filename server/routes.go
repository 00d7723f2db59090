package server

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
)

// A new route is a line in the group with the right middleware; a new group is added to the APIs
// that have it. The groups are here, but for some in kubelet.go, sessions.go, checkpoint.go and zpages.go.
// kubelet.go puts together what port 10250 serves.

// healthPort is the name of the API that serves only health checks.
const healthPort = "healthz"

// apis returns one API for each listener.
func (s *Server) apis() []api {
	port := []middleware{s.checkHost, noBody, readOnly}
	return []api{{
		name: "socket", network: "unix", address: s.config.Socket,
		guard:  []middleware{noBody},
		groups: []group{s.healthGroup(), s.metricsGroup(), s.podsGroup(podList), s.statsGroup(), s.configGroup(), s.cliGroup(), s.profilesGroup(), s.changesGroup(), s.containersGroup(), s.sessionsGroup()},
	}, {
		name: "readonly", network: "tcp", address: s.config.ReadOnlyAddress, field: "readOnlyPort",
		guard:  port,
		groups: []group{s.healthGroup(), s.metricsGroup(), s.podsGroup(maskedPods, s.limitLists), s.statsGroup(s.limitLists)},
	}, {
		name: healthPort, network: "tcp", address: s.config.HealthzAddress, field: "healthzPort",
		guard:  port,
		groups: []group{s.healthGroup()},
	}, {
		name: "kubelet", network: "tcp", address: s.config.KubeletAddress, field: "port", tls: s.config.KubeletTLS,
		guard:  []middleware{s.config.KubeletGuard, s.extendWriteDeadline},
		groups: s.kubeletGroups(),
	}}
}

// containersGroup serves kubectl, which calls through the apiserver.
func (s *Server) containersGroup() group {
	return group{middleware: []middleware{getOnly, noBody}, routes: []route{
		{"/containerLogs/{namespace}/{pod}/{container}", s.stream(http.HandlerFunc(s.containerLogs))},
	}}
}

// healthGroup serves supervisors of podd; see Level.
func (s *Server) healthGroup() group {
	live, healthy, ready := s.health.endpoint("livez", Live), s.health.endpoint("healthz", Healthy), s.health.endpoint("readyz", Ready)
	return group{middleware: []middleware{readOnly}, routes: []route{
		{"/livez", live}, {"/livez/", live},
		{"/healthz", healthy}, {"/healthz/", healthy},
		{"/readyz", ready}, {"/readyz/", ready},
	}}
}

// metricsGroup serves Prometheus.
func (s *Server) metricsGroup() group {
	return group{middleware: []middleware{readOnly}, routes: []route{
		{"/metrics", exposition(s.config.Gather)},
		{"/metrics/probes", exposition(s.config.GatherProbes)},
		{"/metrics/slis", exposition(s.health.slis.registry)},
		{"/metrics/resource", s.scrape(Runtime.ResourceMetrics)},
		{"/metrics/cadvisor", s.scrape(Runtime.CadvisorMetrics)},
	}}
}

// podsGroup has the kubelet's lists of pods. list builds the response.
func (s *Server) podsGroup(list func([]*v1.Pod) *v1.PodList, bounds ...middleware) group {
	running := s.serveJSON(func(*http.Request) any { return runningPods(s.config.Pods.Pods()) })
	return group{middleware: append([]middleware{getOnly}, bounds...), routes: []route{
		{"/pods", s.serveJSON(func(*http.Request) any { return list(s.config.Pods.Pods()) })},
		{"/runningpods", running}, {"/runningpods/", running},
	}}
}

// allocatedGroup serves the pods with the resources that the node allocated to them (KEP-1287).
func (s *Server) allocatedGroup(bounds ...middleware) group {
	if s.config.Kubelet.AllocatedPods == nil {
		return group{}
	}
	one := http.HandlerFunc(s.allocatedPod)
	return group{middleware: append([]middleware{getOnly}, bounds...), routes: []route{
		{"/allocatedPods", s.serveJSON(func(*http.Request) any { return podList(withoutStatus(s.config.Kubelet.AllocatedPods())) })},
		{"/allocatedPods/{namespace}/{pod}", one}, {"/allocatedPods/{namespace}/{pod}/{uid}", one},
	}}
}

// statsGroup has the kubelet's statistics.
func (s *Server) statsGroup(bounds ...middleware) group {
	return group{middleware: append([]middleware{getOnly}, bounds...), routes: []route{{"/stats/summary", http.HandlerFunc(s.summary)}}}
}

// configGroup is the kubelet's /configz.
func (s *Server) configGroup() group {
	var configz http.Handler
	if s.config.Configz != nil {
		configz = s.serveJSON(func(*http.Request) any { return s.config.Configz() })
	}
	return group{middleware: []middleware{readOnly}, routes: []route{{"/configz", configz}}}
}

// cliGroup serves podd's own commands.
func (s *Server) cliGroup() group {
	var objects http.Handler
	if s.config.Objects != nil {
		objects = s.serveJSON(func(*http.Request) any { return append([]ObjectInfo{}, s.config.Objects()...) })
	}
	return group{middleware: []middleware{readOnly}, routes: []route{
		{"/podd/v1/images", http.HandlerFunc(s.images)},
		{"/podd/v1/volumes", http.HandlerFunc(s.volumes)},
		{"/podd/v1/inspect", http.HandlerFunc(s.inspect)},
		{"/podd/v1/pods", s.watchable(func(*http.Request) any { return s.listing() })},
		{"/podd/v1/problems", s.serveJSON(func(*http.Request) any { return s.problems() })},
		{"/podd/v1/events", s.watchable(s.events)},
		{"/podd/v1/objects", objects},
		{"/podd/v1/version", s.serveJSON(func(*http.Request) any { return s.config.Version })},
	}}
}

// changesGroup has the routes that change the node's state.
func (s *Server) changesGroup() group {
	var retry, restart, drain http.Handler
	if s.config.Retry != nil {
		retry = http.HandlerFunc(s.retry)
	}
	if s.config.Restart != nil {
		restart = http.HandlerFunc(s.restart)
	}
	if s.config.Drain != nil {
		drain = s.stream(http.HandlerFunc(s.drain))
	}
	return group{middleware: []middleware{postOnly}, routes: []route{{"/retry", retry}, {"/podd/v1/restart", restart}, {"/podd/v1/images/remove", http.HandlerFunc(s.removeImages)}, {"/podd/v1/drain", drain}}}
}

// exposition serves metrics. It returns nil if gather is nil.
func exposition(gather prometheus.Gatherer) http.Handler {
	if gather == nil {
		return nil
	}
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}
