// Package apiserver is the source of the pods that an apiserver has bound to this node.
//
//	apiserver ──list, watch──► Lister ──whole sets──► Source ──Snapshot──► PodConfig
//
// The Source takes the pods unchanged. The apiserver has defaulted and validated them, and a
// field that only a newer version knows is no reason to refuse a pod. Mirror pods only show the
// apiserver the pods of other sources, so they are not part of the set.
//
// While the apiserver does not respond, the last set stays. It is also on disk (stored). A podd
// that starts without its apiserver runs those pods after ten seconds, as far as they can run
// without objects and tokens, which are never stored. The stored pods are provisional: no other
// pod of the cluster ends because of them, and the apiserver's answer decides once it is back.
// Pods that the apiserver has shown as completed or being deleted are not stored.
package apiserver
