// Package agent makes the desired pods run. It owns the sync loop and one
// worker for each pod; what a worker does next is decided by package plan.
//
//	updates ─► Agent.Run (sync loop) ─► worker(uid) ─► observe ─► plan.Next ─► apply
//	                 ▲                      ▲  │                              │
//	   worker ended ─┘       Wake(uid) ─────┘  └── again, until nothing to do ◄┘
//
// Promises:
//
//   - A pod has one worker at most, and one worker at most holds a pod's
//     namespace/name: a changed or re-added manifest waits for the former
//     generation to be gone.
//   - A worker decides on what the runtime says now. Updates and wake-ups only
//     make it look; two before the look are the same as one.
//   - A pod is started when admission takes it. One that is refused is Failed, and
//     of a source that nobody stands behind (file, HTTP) asked about again when
//     something on the node ended; what runs already is never refused.
//   - What the node ended for good (deadline, eviction, pre-emption, lost sandbox) stays
//     Failed over restarts of podd, until its source takes it away.
//   - The end of a container (hook, turn, signal) goes on beside the worker's
//     looks: a later decision shortens it, and none begins its hook again.
//   - A postStart hook runs beside the looks too, and ends with its container.
//   - Workers never wait for each other, except for a place among the sandboxes
//     being started (Config.ParallelStarts).
//   - What runs and nobody wants ends as soon as its own source has spoken once;
//     the silence of another source holds nothing up (kubernetes/kubernetes#112814).
//   - What a pod has left on disk or as a cgroup while the runtime forgot it (a
//     reboot) goes once per start, when every source has spoken and the runtime
//     has listed its pods.
//   - A pod's end waits for nothing that is being made for it: a create under way
//     gets a second to finish, and what it makes later is found and ended.
//   - The logs of a gone pod stay for Config.LogRetention, over restarts.
//   - A pod that has run to its end keeps its dead containers and its directory,
//     for logs and messages; sandbox, address and mounts are given back. It does
//     not run again while its source wants it, whatever the runtime forgets,
//     unless Retry asks for that.
//   - Ending Run ends no container. It returns at once, or when the creates under
//     way have ended, five seconds later at most.
//
// The agent leaves to others: how a pod is told to a runtime (cri), what a
// status looks like (status), where manifests come from (podconfig).
package agent
