// Package tokens requests the service account tokens that pods project into their volumes
// (KEP-1205) from the apiserver. Tokens are bound to the pod and renewed before they expire.
//
//	volumes ──Token──► Manager ──RequestToken──► apiserver
//	        ◄─Changed──┘
//
// Token never waits for an apiserver. It returns the current token, or why there is none yet,
// and notifies the pod when that changes.
package tokens
