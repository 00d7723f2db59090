// Package events keeps what happened to the pods of this node, in memory: the
// events that upstream's kubelet would send to an apiserver, for podd events,
// podd ps --events and the log.
//
// It owns the ring, the aggregation of repeats and the bounds. It leaves to
// others when an event happens and what it is called.
//
// # Promises
//
//   - Bounded: at most Config.Max events, at most Config.MaxPerPod of one pod,
//     at most MaxMessage bytes of message each. When a pod reaches its bound its
//     own oldest event goes; when all are reached, the oldest of pods that are
//     gone, or else of the pod that has most.
//   - A repeat (same object, type, reason and message) is no new event: its
//     count and last time grow.
//   - Of one object and reason nine messages are told each by itself; further
//     ones are repeats of one combined event that has the newest message, until
//     there was none for ten minutes.
//   - New events about one thing, a pod or a container, are at most 25, and one
//     more every five minutes. Repeats are not counted against that.
//   - Recording never blocks and never fails. Anybody may record and list at any
//     time; events handed out are immutable.
package events
