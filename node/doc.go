// Package node assembles podd: it is what "podd run" runs. Only it knows all
// parts; they know one another through the interfaces that each declares.
//
// There are two stages, with one immutable value between them (ADR 0019):
//
//	New ──► Node: sources, sync loop, status, events, server, health, connection to the runtime
//	          │ greet: the runtime responds for the first time
//	          ▼
//	        Facts: the runtime's name, version and features, its cgroup driver, the node's addresses
//	          │ assemble
//	          ▼
//	        parts: cgroups, CRI client, volumes, images, probes, hooks, admission, clean-up
//
// Before the greeting manifests are read and validated, and pods show as waiting
// for the runtime; none is touched. Errors of the configuration or of this machine
// are returned by New, whether the runtime is available or not.
//
// node/capacity determines capacity and allocatable; node/bundled is the bundled
// runtime with its network; node/teardown stops a podd from outside.
package node
