// Package apiserver is the source of the pods that an apiserver has bound to this node.
//
//	apiserver ──list, watch──► Lister ──whole sets──► Source ──Snapshot──► PodConfig
//
// The pods are taken as the apiserver has them: it has defaulted and validated them, and
// a field that only a newer version knows is no reason to refuse one. Mirror pods, which
// only show the apiserver what runs of the other sources, are not part of the set.
//
// While the apiserver does not respond, the last set stays. It is on disk, too (stored): a
// podd that is started without its apiserver runs those pods after ten seconds, as far as
// they can run without objects and tokens, which are never stored. They are provisional: no
// other pod of the cluster ends because of it, and what the apiserver says when it is back
// decides. What it has shown as ended or being deleted is not stored.
package apiserver
