// Package podsapi serves the kubelet's PodsAPI (KEP-4188; pods/v1alpha1) on
// <root-dir>/pods-api/pods-api.sock. Monitoring agents and network plugins list, get and watch
// the node's pods there, with their newest statuses and without the apiserver.
//
// It reads the pods from the status writer and keeps no copy. Only root may connect.
//
// # Promises
//
//   - Nothing runs and nothing is allocated for a change of a pod while nobody watches.
//   - A watcher first gets every pod as ADDED, then INITIAL_SYNC_COMPLETE, then changes. The
//     events of one pod are ADDED, any number of MODIFIED, DELETED. The versions of a pod never
//     go back.
//   - A slow watcher delays nobody. It may miss versions in between, but never the newest one,
//     and never the DELETED of a pod that it has got. So at most one version of each pod waits
//     for a watcher.
//   - If a watcher leaves an event untaken for stallTimeout, its watch ends with
//     RESOURCE_EXHAUSTED. So does a watch beyond maxWatchers. The client may watch again.
//   - Until podd has looked at all pods of an earlier podd, every call fails with
//     FAILED_PRECONDITION. Otherwise a client might take a pod that podd does not know yet for
//     a deleted one.
//
// The kubelet queues 100 events for each watcher, and ends the watch of a slower one. It also
// sends DELETED for a pod that has run to its end, although it still lists the pod. Here DELETED
// means what it means elsewhere in Kubernetes: the pod is gone.
package podsapi
