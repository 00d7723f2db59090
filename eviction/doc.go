// Package eviction keeps the node from running out of memory, disk space, inodes and process
// IDs: it gives back what nobody needs, and then evicts pods, as the kubelet's eviction
// manager does (pkg/kubelet/eviction,
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/). It also
// says under which conditions the node is, which the Node shows, and which admission asks.
//
//	Node.Observe ──► state.next (pure) ──► conditions ──► Conditions, Problems, Changed
//	   ▲ every 10 s,        │ thresholds that are met, their grace periods over
//	   │ or the kernel's    ▼
//	   │ alarm          Node.Reclaim: ended containers, unused images ──► observe again
//	   │                    │ still met
//	   │                    ▼
//	   └───────────── Usage of the pods ──► rank (pure) ──► Evict one, and wait for its end
//
// # Promises
//
//   - Without thresholds nothing is ever measured, and the node is under no pressure.
//   - Between pressures, only the signals that have a threshold are measured, each by one or
//     a few system calls. What pods use is measured when a pod is to be evicted.
//   - One pod at a time: the next one at the earliest when nothing of it is left, or 30 s
//     later, if the threshold is still met then.
//   - Critical pods are never evicted, nor refused: the node's own (static) pods, their
//     mirror pods, and those of the system's priorities. They would not come back.
//   - A condition holds as long as a threshold is met, and for the transition period
//     (evictionPressureTransitionPeriod) after that.
//
// The limits that single pods have are not this package's but volumes/usage's.
package eviction
