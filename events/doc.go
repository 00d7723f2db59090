// Package events keeps the events of this node's pods in memory: those that
// upstream's kubelet would send to an apiserver, for podd events,
// podd ps --events and the log. A Keeper writes them to disk for the next podd.
//
// It owns the ring buffer, the aggregation of repeats and the limits. Other packages
// decide when an event happens and what it is called.
//
// # Promises
//
//   - Bounded: at most Config.Max events, at most Config.MaxPerPod of one pod,
//     at most MaxMessage bytes of message each. When a pod reaches its limit its
//     own oldest event is dropped; when the total is reached, the oldest of removed
//     pods, or else of the pod that has most.
//   - A repeat (same object, type, reason and message) is not a new event: its
//     count and last time are updated.
//   - Nine messages of one object and reason are events of their own. Further ones
//     are repeats of one combined event with the newest message, until none came for
//     ten minutes.
//   - One subject, a pod or a container, gets at most 25 new events, and one more every
//     five minutes. Repeats do not count against that.
//   - Recording never blocks and never fails. Any goroutine may record and list at
//     any time; returned events are immutable.
package events
