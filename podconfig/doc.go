// Package podconfig merges the desired pods of all sources into one ordered stream
// of changes for the agent.
//
//	file.Source ─┐ Snapshot
//	http.Source ─┼─────────► PodConfig ──pod.Update──► agent
//	  (others)  ─┘ whole set    │
//	                            ├─ Replace ──────► Objects (ConfigMaps, Secrets)
//	                            └─ Problems, SeenAll
//
// A source sends its whole set each time (a SET, in the kubelet's terms);
// PodConfig compares it by UID with the source's previous set and sends the
// difference to the agent: ADD, UPDATE, RECONCILE, DELETE, REMOVE. It owns that
// comparison, which of two pods with one name runs, the list of problems and which
// sources are ready. It leaves to the sources how they learn of pods
// (podconfig/file, podconfig/http) and what a manifest means (podconfig/manifest).
//
// Promises:
//
//   - Order. Within one merge all REMOVEs come first, over all sources, then
//     each source's ADD, UPDATE, DELETE and RECONCILE: the old generation of a
//     replaced pod is removed before the new one is added, so a name is free before
//     it is reused. Updates never overtake each other.
//   - One pod per name. Of several pods with one namespace/name, from whichever
//     sources, the agent gets one: the one whose origin has the name already, else
//     the first in the order of the sources and, within one, of its snapshot. Each
//     of the others is a Problem that names both origins, and takes over when the
//     name becomes free.
//   - Objects before pods that come, after pods that go. Objects are told as a whole
//     set, one for each kind, namespace and name, between the removals and the other
//     changes of pods of the same merge: a pod and its objects in one file start
//     without a wait, and a pod that is removed does not miss those that go with it. Which of two of a name is used, and that a
//     source that is silent or incomplete leaves what it had, is as for pods. An
//     object that did not change is the same pointer again.
//   - The first complete snapshot of a source yields at least one Update (an
//     ADD without pods when there is nothing), and the source counts as seen only
//     after the reader has taken the updates of that snapshot. A silent source
//     delays neither the others nor that they count as seen
//     (kubernetes/kubernetes#112814).
//   - Back-pressure. Snapshots are whole sets, so only the newest of each source
//     waits for a slow reader; a source is never blocked by the reader.
//   - A source that fails is restarted, after 1 s doubling to 30 s, and its last set
//     stays.
package podconfig
