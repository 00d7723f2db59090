// Package server answers questions about the node over HTTP: on the read-only
// port, on the healthz port, and on podd's own unix socket, which the command
// line uses.
//
// It owns listeners, routes, timeouts and the shapes of answers. It leaves to
// others what the answers say: pods, problems, events, health and configuration
// come through the interfaces and functions in Config.
//
//	socket (root only)    everything below, /configz, /podd/v1/…, /debug/pprof, POST /retry
//	read-only port        /pods /runningpods/ /metrics /healthz /livez /readyz
//	healthz port          /healthz /livez /readyz
//
// Each of them is an api: a guard that every request passes, and groups of routes
// that have their middleware (methods, masking, bounds) in common. routes.go has
// them all; a new route, group or listener goes there.
//
// /livez says that podd itself works, /healthz that it can do its work, /readyz
// that pods have all they need; see Level.
//
// # Promises
//
//   - On the ports only GET and HEAD do anything, and nothing changes the node.
//     The socket has one route more that does, POST /retry.
//   - What a manifest says in confidence (values of env, of headers and queries of
//     probes and hooks) is whole on the socket and masked on the ports.
//   - A port has at most 64 connections; one more closes the idlest. Two lists of
//     pods at a time are answered there.
//   - Where a volume is, and what the runtime was given for a container, the socket
//     alone answers, and nothing of it is a Secret's value. The runtime is asked for
//     8 s at most.
//   - No request holds a lock of podd's while it waits for its reader; a health
//     check that hangs is waited for by one goroutine, however many ask.
//   - The ports answer to an IP address, localhost and the node's name only, so
//     that no page in a browser of this machine reads them.
//   - Stopping takes two seconds at most. Streams (watch, follow, exec) are told at
//     once; other requests may finish.
//   - The socket is readable by its owner only, from the first moment on.
//   - Two podds never share a state directory: the second is refused by Listen.
package server
