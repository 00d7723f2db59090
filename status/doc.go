// Package status makes the API's view of a pod (v1.PodStatus) of what its
// worker reports, and keeps the newest view of every pod.
//
// It owns the rules by which phase, conditions and container states follow from
// what was observed, all of them in Compute, which is pure: no clock, no I/O,
// the same arguments always give the same status. The rules, reasons and
// messages are the kubelet's (pkg/kubelet: getPhase, convertToAPIContainerStatuses,
// status/generate.go), so that whoever reads GET /pods of podd reads what the
// kubelet would have written.
//
// It leaves to others what a pod should do next (agent/plan), why a container
// waits (the worker says so in Report.Waiting) and the upload to an apiserver.
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
