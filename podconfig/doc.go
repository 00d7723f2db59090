// Package podconfig merges what all sources want into one ordered stream of
// changes for the agent.
//
//	file.Source ─┐ Snapshot
//	http.Source ─┼─────────► PodConfig ──pod.Update──► agent
//	  (others)  ─┘ whole set    │
//	                            └─ Problems, Seen
//
// A source says its whole set each time (a SET, in the kubelet's words);
// PodConfig compares it by UID with what that source said before and tells the
// agent the difference: ADD, UPDATE, RECONCILE, DELETE, REMOVE. It owns that
// comparison, which of two pods of one name runs, the list of problems and who
// has spoken. It leaves to the sources how they learn of pods (podconfig/file,
// podconfig/http) and what a manifest means (podconfig/manifest).
//
// Promises:
//
//   - Order. Within one merge all REMOVEs come first, over all sources, then
//     each source's ADD, UPDATE, DELETE and RECONCILE: the old generation of a
//     replaced pod is told before the new one, and a name is free before it is
//     taken. Updates never overtake each other.
//   - One pod a name. Of several pods with one namespace/name, whichever the
//     sources, one is told to the agent: the one from the place whose pod has
//     the name already, else the first in the order of the sources and, within
//     one, of its snapshot. Each of the others is a Problem that names both
//     places, and takes over when the name becomes free.
//   - The first complete snapshot of a source yields at least one Update (an
//     ADD without pods when there is nothing), and Seen(source) turns true only
//     after the reader has taken the updates of that snapshot. A source that is
//     silent holds up neither the others nor their Seen
//     (kubernetes/kubernetes#112814).
//   - Back-pressure. Snapshots are whole sets, so only the newest of each source
//     waits for a slow reader; a source is never blocked by the reader.
//   - A source that fails is started again, after 1 s doubling to 30 s, and what
//     it said last stays.
package podconfig
