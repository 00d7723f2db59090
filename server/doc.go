// Package server serves the node's state over HTTP: on the read-only port, on the healthz port,
// and on podd's own unix socket, which the command line uses. It also serves the kubelet's API,
// which package kubeletapi guards. Below, "the ports" are the read-only port and the healthz
// port.
//
// It owns listeners, routes, timeouts and the format of responses. The content (pods, problems,
// events, health, configuration) comes through the interfaces and functions in Config.
//
//	socket (root only)    everything below, /configz, /podd/v1/…, /debug/pprof, POST /retry
//	read-only port        /pods /runningpods/ /stats/summary /metrics/… /healthz /livez /readyz
//	healthz port          /healthz /livez /readyz
//
// Each listener is an api: a guard for every request, and groups of routes with common
// middleware (methods, masking, limits). All routes are in routes.go.
//
// /livez says whether podd itself works, /healthz whether it can do its work, and /readyz
// whether pods have everything they need; see Level.
//
// # Promises
//
//   - The ports allow only GET, and HEAD for health checks and metrics. No request there
//     changes the node. The socket has two routes that do, POST /retry and POST /podd/v1/drain.
//   - The socket shows confidential values in manifests (of env, and of headers and queries of
//     probes and hooks). The ports mask them.
//   - A port has at most 64 connections; one more closes the longest idle one. It serves two
//     lists of pods concurrently. All listeners together write four expositions of pods'
//     metrics at once.
//   - Only the socket shows where a volume is on the host and what podd gave the runtime for a
//     container, never with a Secret's value. A call to the runtime takes at most 8 s.
//   - No request holds a lock while it waits for its client. Only one goroutine waits for a
//     health check that hangs, however many requests there are.
//   - The ports accept only requests to an IP address, localhost or the node's name, so that no
//     web page in a browser on this machine can read them.
//   - Stopping takes at most two seconds. Streams (watch, follow, exec) end at once; other
//     requests may finish.
//   - From the moment it exists, only its owner can access the socket.
//   - Two podds never share a state directory: Listen rejects the second.
package server
