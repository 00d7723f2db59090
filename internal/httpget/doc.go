// Package httpget implements a container's httpGet action for probes and lifecycle
// handlers: its URL and headers, the named port, and a client that is safe whatever a pod
// serves.
//
// The rules are upstream's (pkg/probe, pkg/probe/http). The package has no state but
// a transport and starts no goroutine; everything in it is safe for concurrent use.
package httpget
