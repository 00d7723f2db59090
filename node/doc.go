// Package node assembles podd. "podd run" runs it. Only this package knows all parts; they know
// one another through the interfaces that each declares.
//
// There are two stages, with one immutable value between them (ADR 0019):
//
//	New ──► Node: sources, sync loop, status, events, server, health, connection to the runtime
//	          │ awaitRuntime: the runtime responds for the first time
//	          ▼
//	        Facts: the runtime's name, version and features, its cgroup driver, the node's addresses
//	          │ assemble
//	          ▼
//	        runtimeParts: cgroups, CRI client, volumes, images, probes, hooks, admission, clean-up
//
// Until the runtime responds, podd reads and validates manifests and shows their pods as waiting
// for it. It touches none of them. New returns errors of the configuration or of this
// machine, whether the runtime is available or not.
//
// node/capacity determines capacity and allocatable. node/bundled is the bundled runtime with
// its network. node/teardown stops a podd from outside.
package node
