// Package server serves the node's state over HTTP: on the read-only port, on the
// healthz port, and on podd's own unix socket, which the command line uses.
//
// It owns listeners, routes, timeouts and the format of responses. Their content (pods,
// problems, events, health, configuration) comes through the interfaces and functions
// in Config.
//
//	socket (root only)    everything below, /configz, /podd/v1/…, /debug/pprof, POST /retry
//	read-only port        /pods /runningpods/ /stats/summary /metrics/… /healthz /livez /readyz
//	healthz port          /healthz /livez /readyz
//
// Each of them is an api: a guard for every request, and groups of routes with common
// middleware (methods, masking, limits). All of them are in routes.go.
//
// /livez says that podd itself works, /healthz that it can do its work, /readyz that
// pods have everything they need; see Level.
//
// # Promises
//
//   - The ports allow only GET and HEAD, and nothing there changes the node. The socket
//     has one route that does, POST /retry.
//   - Confidential values in manifests (of env, and of headers and queries of probes and
//     hooks) are shown on the socket and masked on the ports.
//   - A port has at most 64 connections; one more closes the longest idle one. It serves
//     two lists of pods concurrently. Four expositions of pods' metrics are written at once,
//     over all listeners.
//   - Only the socket serves where a volume is, and what the runtime was given for a
//     container, never with a Secret's value. The runtime is asked for 8 s at most.
//   - No request holds a lock while it waits for its client; only one goroutine waits for
//     a health check that hangs, however many requests there are.
//   - The ports serve requests to an IP address, localhost or the node's name only, so
//     that no web page in a browser on this machine can read them.
//   - Stopping takes two seconds at most. Streams (watch, follow, exec) end at once;
//     other requests may finish.
//   - The socket is accessible to its owner only, from its creation on.
//   - Two podds never share a state directory: Listen rejects the second.
package server
