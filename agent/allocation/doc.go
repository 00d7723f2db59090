// Package allocation decides which of the node's resources a pod has: the CPU and
// memory that the node granted it, while its source may desire something else
// (KEP-1287). It is pure. A worker (package agent) asks the node for decisions, carries a
// resize out, and writes the checkpoints in the form of Checkpoint.
//
//	granted ──desired changes──► asked ──it fits──► granted
//	                             ▲   │
//	               room, or time └── deferred, infeasible
//
// A pod is created, and counted against the node, with what was granted. The node decides
// once about what the pod's source desires, and again when there may be room; a restart
// of podd grants nothing.
package allocation
