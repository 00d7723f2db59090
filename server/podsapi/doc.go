// Package podsapi serves the kubelet's PodsAPI (KEP-4188; pods/v1alpha1) on
// <root-dir>/pods-api/pods-api.sock: the node's pods with their newest statuses, without a
// request to the apiserver. Monitoring agents and network plugins list, get and watch them.
//
// It gets the pods from the status writer, and owns no copy of them. Only root may connect.
//
// # Promises
//
//   - Nothing runs and nothing is allocated for a change of a pod while nobody watches.
//   - A watcher first gets every pod as ADDED, then INITIAL_SYNC_COMPLETE, then changes. Of
//     each pod the events are ADDED, any number of MODIFIED, DELETED. A pod's object of an
//     event is never older than that of the event before it.
//   - A slow watcher delays nobody. It misses versions between the one that it got and the
//     newest, never the newest, and never the DELETED of a pod that it got. So what waits for a
//     watcher is at most one version of each pod.
//   - A watcher that takes nothing for stallTimeout while there is something to take ends with
//     RESOURCE_EXHAUSTED, as does one beyond maxWatchers. It may watch again.
//   - Until podd has looked at all pods of an earlier podd, every call fails with
//     FAILED_PRECONDITION, so that no client takes pods that are still unknown for deleted.
//
// The kubelet, which this follows, queues 100 events for each watcher and ends the watch of a
// slower one. It also reports a pod that has run to its end as DELETED, although it goes on
// listing it. Here DELETED means what it means to every other client: the pod is gone.
package podsapi
