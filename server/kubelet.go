package server

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
)

// Kubelet is what of the kubelet's API is configurable.
type Kubelet struct {
	// Debugging is enableDebuggingHandlers: without it there are no containers' logs,
	// sessions, profiles and system logs, nor any of the pages below.
	Debugging bool
	// Profiling, DebugFlags and SystemLogs are enableProfilingHandler,
	// enableDebugFlagsHandler and enableSystemLogHandler.
	Profiling, DebugFlags, SystemLogs bool
	// LogQuery is enableSystemLogQuery: /logs/?query= shows the journal (KEP-2258).
	LogQuery bool
	// LogDir is what /logs/ shows: /var/log.
	LogDir string
	// Flags are those of the command line, without secrets, for /flagz.
	Flags func() map[string]string
	// SetVerbosity sets the log's, as --v does.
	SetVerbosity func(level int)
	// CheckpointDir is where /checkpoint leaves archives; it is made when needed.
	CheckpointDir string
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
	groups = append(groups, s.configGroup(), s.containersGroup(), s.sessionsGroup(), s.checkpointGroup(), s.zpagesGroup())
	if k.Profiling {
		groups = append(groups, s.profilesGroup())
	} else {
		groups = append(groups, group{routes: []route{{"/debug/pprof/", disabled("profiling endpoint is disabled.")}}})
	}
	logs := disabled("logs endpoint is disabled.")
	if k.SystemLogs {
		logs = readOnly(noBody(s.stream(http.HandlerFunc(s.systemLogs))))
	}
	flags := disabled("flags endpoint is disabled.")
	if k.DebugFlags {
		flags = http.HandlerFunc(s.verbosity)
	}
	return append(groups, group{routes: []route{{"/logs", logs}, {"/logs/", logs}, {"/debug/flags/v", flags}}})
}

// disabled answers for what the configuration has switched off, in the kubelet's words.
func disabled(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusMethodNotAllowed) })
}

// profilesGroup is for profiling podd.
func (s *Server) profilesGroup() group {
	return group{middleware: []middleware{readOnly}, routes: []route{
		{"/debug/pprof/", s.stream(http.HandlerFunc(pprof.Index))},
		{"/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline)},
		{"/debug/pprof/profile", s.stream(http.HandlerFunc(pprof.Profile))},
		{"/debug/pprof/trace", s.stream(http.HandlerFunc(pprof.Trace))},
		{"/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol)},
	}}
}
