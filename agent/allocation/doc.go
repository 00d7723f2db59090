// Package allocation decides which of the node's resources a pod has: the CPU and
// memory that the node granted it, while its source may desire something else
// (KEP-1287). It is pure: a worker (package agent) has the node decide, carries a
// resize out, and writes the checkpoints, whose form is Checkpoint.
//
//	granted ──desired changes──► asked ──it fits──► granted
//	                             ▲   │
//	               room, or time └── deferred, infeasible
//
// A pod is created, and counted against the node, with what was granted. What its
// source desires is decided about once, and again when there may be room; a restart
// of podd grants nothing.
package allocation
