// Package node puts podd together: it is what "podd run" runs. It alone knows all
// parts; they know one another only through the interfaces that each declares.
//
// There are two stages, with one immutable value between them (ADR 0019):
//
//	New ──► Node: sources, sync loop, status, events, server, health, the way to the runtime
//	          │ greet: the runtime answers for the first time
//	          ▼
//	        Facts: who the runtime is, what it can do, its cgroup driver, the node's addresses
//	          │ assemble
//	          ▼
//	        parts: cgroups, CRI client, volumes, images, probes, hooks, admission, clean-up
//
// Before the greeting manifests are read and checked, and pods show as waiting for
// the runtime; none is touched. What is wrong with the configuration or with this
// machine fails in New, whether the runtime is there or not.
//
// node/capacity finds what the machine has; node/bundled is the runtime that comes
// with podd together with its network; node/teardown ends a podd from outside.
package node
