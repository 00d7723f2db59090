// Package tokens has the service account tokens that pods project into their volumes
// (KEP-1205): requested from the apiserver, bound to the pod, and renewed before they
// expire.
//
//	volumes ──Token──► Manager ──RequestToken──► apiserver
//	        ◄─Changed──┘
//
// Nothing waits for an apiserver: Token returns what there is, or why there is nothing yet,
// and the pod is notified when that changes.
package tokens
