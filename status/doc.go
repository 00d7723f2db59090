// Package status computes the API's status of a pod (v1.PodStatus) from its
// worker's report, and keeps the latest status of every pod.
//
// It owns the rules by which phase, conditions and container states follow from
// what was observed, all of them in Compute, which is pure: no clock, no I/O,
// the same arguments always give the same status. The rules, reasons and
// messages are the kubelet's (pkg/kubelet: getPhase, convertToAPIContainerStatuses,
// status/generate.go), so that GET /pods of podd returns what the kubelet
// would have written.
//
// It leaves to others what to do next (agent/plan), why a container is waiting (the
// worker reports it in Report.Waiting; the reasons are listed in internal/pod) and the
// upload to an apiserver.
//
// # Promises
//
//   - A restart of podd changes nothing in a status: what is not in the previous
//     status is derived from facts that outlive podd (start time, creation and
//     exit times of sandboxes and containers), never from the clock while such
//     a fact exists.
//   - A terminal phase (Succeeded, Failed) is written only when no container
//     runs, and never left again.
//   - Writer never blocks on a reader: a slow subscriber costs itself time, it
//     never delays a worker or loses a change.
//   - Pods handed out are immutable snapshots, shared between callers.
package status
