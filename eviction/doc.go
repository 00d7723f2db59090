// Package eviction keeps the node from running out of memory, disk space, inodes and process
// IDs: it gives back what nobody needs, and then evicts pods, as the kubelet's eviction
// manager does (pkg/kubelet/eviction,
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/). It also
// reports which pressure conditions the node is under: the Node shows them, and admission
// asks for them.
//
//	Node.Observe ──► state.decide (pure) ──► conditions ──► Conditions, Problems, Changed
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
//     a few system calls. The pods' usage is measured only before a pod is evicted.
//   - One pod at a time: the next one follows when the node has nothing left of the last one,
//     or after 30 s, if the threshold is still met then.
//   - Critical pods are never evicted, nor refused: the node's own (static) pods, their
//     mirror pods, and pods with the system's priorities. They would not come back.
//   - A condition holds as long as a threshold is met, and for the transition period
//     (evictionPressureTransitionPeriod) after that.
//
// Package volumes/usage, not this one, watches the limits of single pods.
package eviction
