// Package apiserver is the source of the pods that an apiserver has bound to this node.
//
//	apiserver ──list, watch──► Lister ──whole sets──► Source ──Snapshot──► PodConfig
//
// The pods are taken as the apiserver has them: it has defaulted and validated them, and
// a field that only a newer version knows is no reason to refuse one. Mirror pods, which
// only show the apiserver what runs of the other sources, are not part of the set.
//
// While the apiserver does not respond, the last set stays, across that outage and for
// as long as podd runs; it is not kept on disk, as the kubelet keeps none either.
package apiserver
