// Package podconfig merges the desired pods of all sources into one ordered stream
// of changes for the agent.
//
//	file.Source ─┐ Snapshot
//	http.Source ─┼─────────► PodConfig ──pod.Update──► agent
//	  (others)  ─┘ whole set    │
//	                            ├─ Replace ──────► Objects (ConfigMaps, Secrets)
//	                            └─ Problems, SeenAll
//
// A source sends its whole set each time (a SET, in the kubelet's terms). PodConfig compares it
// by UID with the source's previous set and sends the difference to the agent: ADD, UPDATE,
// RECONCILE, DELETE, REMOVE. It owns that comparison, the choice between two pods with one
// name, the list of problems and the readiness of sources. The sources own how they learn of
// pods (podconfig/file, podconfig/http), and podconfig/manifest what a manifest means.
//
// Promises:
//
//   - Order. Within one merge all REMOVEs come first, over all sources, then each source's ADD,
//     UPDATE, DELETE and RECONCILE. The old generation of a replaced pod is thus removed before
//     the new one is added, and a name is free before it is reused. Updates never overtake each
//     other.
//   - One pod per name. If several pods have one namespace/name, from whichever sources, the
//     agent gets only one. It is the pod from the origin that already holds the name, or else
//     the first in the order of the sources and, within a source, of its snapshot. Each of the
//     others becomes a Problem that names both origins, and takes over when the name becomes
//     free.
//   - Objects arrive before the pods that need them and go after them. They are delivered as a
//     whole set, one for each kind, namespace and name, between the removals and the other
//     changes of pods in the same merge. So a pod and its objects in one file start without a
//     wait, and a removed pod does not miss objects that go with it. As with pods, one of two
//     objects with the same name is chosen, and a silent or incomplete source keeps what it
//     had. An unchanged object is the same pointer again.
//   - The first complete snapshot of a source yields at least one Update (an ADD without pods
//     if it is empty). The source counts as seen only after the reader has taken the updates of
//     that snapshot. A silent source neither delays the others nor keeps them from counting as
//     seen (kubernetes/kubernetes#112814).
//   - Back-pressure. Snapshots are whole sets, so only the newest of each source waits for a
//     slow reader. The reader never blocks a source.
//   - A source that fails is restarted after 1 s, doubling to 30 s. Its last set stays.
package podconfig
