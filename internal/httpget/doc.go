// Package httpget is what a container's httpGet action means on the wire, for
// probes and lifecycle handlers alike: its URL and headers, the named port, and
// a client that is safe to point at whatever a pod serves.
//
// The rules are upstream's (pkg/probe, pkg/probe/http). The package keeps no
// state beyond a transport and starts no goroutine; everything in it may be
// used by many at a time.
package httpget
