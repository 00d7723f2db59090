package events

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// NodeEvent is Event for the node itself. Its UID is its name: an Uploader replaces that by
// the Node's.
func (r *Recorder) NodeEvent(eventType, reason, message string) {
	r.record(v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.config.Node, UID: pod.UID(r.config.Node)}, eventType, reason, message)
}

// ClaimEvent is Event for a claim of the cluster.
func (r *Recorder) ClaimEvent(claim *v1.PersistentVolumeClaim, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}, eventType, reason, message)
}
