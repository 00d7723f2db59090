package server

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Kubelet configures the kubelet's API.
type Kubelet struct {
	// Debugging is enableDebuggingHandlers. Without it the API serves no container logs,
	// sessions, profiles or system logs, and none of the pages below.
	Debugging bool
	// Profiling, DebugFlags and SystemLogs are enableProfilingHandler,
	// enableDebugFlagsHandler and enableSystemLogHandler.
	Profiling, DebugFlags, SystemLogs bool
	// LogQuery is enableSystemLogQuery: /logs/?query= shows the journal (KEP-2258).
	LogQuery bool
	// LogDir is what /logs/ shows: /var/log.
	LogDir string
	// Flags returns the flags of the command line, without secrets, for /flagz.
	Flags func() map[string]string
	// SetVerbosity sets the log's verbosity, as --v does.
	SetVerbosity func(level int)
	// AllocatedPods returns the pods that use resources of the node, each with the resources
	// that the node allocated to it, sorted. It is nil if the feature gate
	// KubeletAllocatedPodsEndpoint is off: there is no /allocatedPods then.
	AllocatedPods func() []*v1.Pod
	// CheckpointDir is where /checkpoint leaves archives. It is created when needed.
	CheckpointDir string
}

type kubeletPath struct {
	path         string
	subresources []string
}

// kubeletPaths are the paths of the kubelet's API, with all below them, and the subresources of
// the Node that each takes, as upstream has them (pkg/kubelet/server/auth.go; KEP-2862 for those
// beside proxy). Every route has a row. A path without one is proxy.
var kubeletPaths = []kubeletPath{
	{"/pods", []string{"pods", "proxy"}},
	{"/allocatedPods", []string{"pods", "proxy"}},
	{"/runningpods", []string{"pods", "proxy"}},
	{"/healthz", []string{"healthz", "proxy"}},
	{"/livez", []string{"proxy"}},
	{"/readyz", []string{"proxy"}},
	{"/configz", []string{"configz", "proxy"}},
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/containerLogs", []string{"proxy"}},
	{"/run", []string{"proxy"}},
	{"/exec", []string{"proxy"}},
	{"/attach", []string{"proxy"}},
	{"/portForward", []string{"proxy"}},
	{"/debug", []string{"proxy"}},
}

// KubeletSubresources returns the subresources of the Node that a path of the kubelet's API takes.
// Access to one of them is enough.
func KubeletSubresources(path string) []string {
	for _, p := range kubeletPaths {
		if isUnderPath(path, p.path) {
			return p.subresources
		}
	}
	return []string{"proxy"}
}

// isUnderPath says that a path is another one, or below it.
func isUnderPath(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '/')
}

// kubeletGroups are the groups of the kubelet's API.
func (s *Server) kubeletGroups() []group {
	const podsAt = 0
	groups := []group{s.podsGroup(podList, s.limitLists), s.healthGroup(), s.metricsGroup(), s.statsGroup()}
	k := &s.config.Kubelet
	if !k.Debugging {
		off := disabled("Debug endpoints are disabled.")
		groups[podsAt].routes = slices.DeleteFunc(groups[podsAt].routes, func(r route) bool { return strings.HasPrefix(r.pattern, "/runningpods") })
		return append(groups, group{routes: []route{
			{"/runningpods/", off}, {"/run/", off}, {"/exec/", off}, {"/attach/", off}, {"/portForward/", off}, {"/containerLogs/", off}, {"/debug/pprof/", off}, {"/logs/", off},
		}})
	}
	groups = append(groups, s.configGroup(), s.containersGroup(), s.sessionsGroup(), s.checkpointGroup(), s.zpagesGroup(), s.allocatedGroup(s.limitLists))
	if k.Profiling {
		groups = append(groups, s.profilesGroup())
	} else {
		groups = append(groups, group{routes: []route{{"/debug/pprof/", disabled("profiling endpoint is disabled.")}}})
	}
	logs := disabled("logs endpoint is disabled.")
	if k.SystemLogs {
		logs = getOnly(noBody(s.stream(http.HandlerFunc(s.systemLogs))))
	}
	flags := disabled("flags endpoint is disabled.")
	if k.DebugFlags {
		flags = http.HandlerFunc(s.verbosity)
	}
	return append(groups, group{routes: []route{{"/logs", logs}, {"/logs/", logs}, {"/debug/flags/v", flags}}})
}

// disabled responds for an endpoint that the configuration has switched off, in the kubelet's
// words.
func disabled(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusMethodNotAllowed) })
}

// profilesGroup has the routes for profiling podd.
func (s *Server) profilesGroup() group {
	return group{middleware: []middleware{getOnly}, routes: []route{
		{"/debug/pprof/", s.stream(http.HandlerFunc(pprof.Index))},
		{"/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline)},
		{"/debug/pprof/profile", s.stream(http.HandlerFunc(pprof.Profile))},
		{"/debug/pprof/trace", s.stream(http.HandlerFunc(pprof.Trace))},
		{"/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol)},
	}}
}
