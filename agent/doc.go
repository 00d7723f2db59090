// Package agent makes the desired pods run. It owns the sync loop and one
// worker for each pod; what a worker does next is decided by package plan.
//
//	updates ─► Agent.Run (sync loop) ─► worker(uid) ─► observe ─► plan.Next ─► apply
//	                 ▲                      ▲  │                              │
//	   worker ended ─┘       Wake(uid) ─────┘  └── again, until nothing to do ◄┘
//
// Promises:
//
//   - A pod has at most one worker, and at most one worker holds a pod's
//     namespace/name: a changed or re-added manifest waits until the previous
//     generation is gone.
//   - A worker decides on the observed state. Updates and wake-ups only make it
//     sync; two before a sync have the effect of one.
//   - A pod runs with the resources that the node granted, and counts against the
//     node with them. Other resources are a proposal; a restart of podd grants none.
//   - A pod is started when it is admitted. A rejected pod is Failed, and, if no
//     controller stands behind its source (file, HTTP), admission is retried when
//     something on the node ended; what already runs is never rejected.
//   - A pod that the node ended for good (deadline, eviction, pre-emption, lost
//     sandbox) stays Failed over restarts of podd, until its source removes it.
//   - Stopping a container (hook, turn, signal) goes on outside the worker's syncs:
//     a later decision may shorten it, and none runs its hook again.
//   - A container may have been killed and still wait for a volume's server that no
//     longer responds. podd helps it to exit (Volumes.AbortRequests) if its pod ends,
//     too. A container that will be restarted waits.
//   - A postStart hook runs outside the syncs too, and ends with its container.
//   - The set-up of volumes goes on outside the syncs where it takes long, and ends
//     with its pod. The order in which everything that a pod has on the node is set
//     up and torn down is the list in setup.go.
//   - A pod that lacks a ConfigMap or Secret starts when that object appears. The
//     object has no effect on what runs already, or on what waits for anything else.
//     The volumes of a pod learn that it is being stopped (Volumes.Stopping) before
//     the agent takes the next update.
//   - Workers never wait for each other, except for a slot among the sandboxes
//     being started (Config.ParallelStarts).
//   - An orphaned pod is terminated as soon as its own source is ready; another
//     source that is not delays nothing (kubernetes/kubernetes#112814).
//   - What a pod has left on disk or as a cgroup after the runtime forgot it (a
//     reboot) is removed once per start, when every source is ready and the runtime
//     has listed its pods. What running processes kept from being removed is looked
//     at again whenever some of them may have ended (RecheckLeftovers).
//   - Terminating a pod waits for nothing that is being created for it: a create in
//     progress gets a second to finish, and what it creates later is found and
//     removed.
//   - The logs of a removed pod are kept for Config.LogRetention, over restarts.
//   - A completed pod keeps its dead containers and its directory, for logs and
//     messages; sandbox, address and mounts are released. It does not run again
//     while it is desired, whatever the runtime forgets, unless Retry asks for that.
//   - Ending Run stops no container. It returns at once, or when the creates in
//     progress have ended, after five seconds at most.
//
// It leaves to others: how a pod is described to a runtime (cri), what a status
// contains (status), where manifests come from (podconfig).
package agent
