// Package allocation decides what of the node a pod has: the CPU and memory that
// the node granted it, while its source may desire something else (KEP-1287). It
// is pure: a worker (package agent) asks the node, carries a resize out, and keeps
// the checkpoints, whose form is Checkpoint.
//
//	granted ──desired changes──► asked ──it fits──► granted
//	                             ▲   │
//	               room, or time └── deferred, infeasible
//
// A pod is made, and counted against the node, by what was granted. What its source
// desires is asked about once, and again when there may be room; a restart of podd
// grants nothing.
package allocation
