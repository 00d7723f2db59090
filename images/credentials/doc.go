// Package credentials finds the credentials of a pull. It tries, in this order, the Secrets
// that the pod names (imagePullSecrets), the node's docker configuration, and credential
// provider plugins (KEP-2133).
//
//	Keyring.Lookup ──► Secrets ──► config.json, .dockercfg ──► Providers ──► plugin processes
//	                     └────────── index by registry and path (match.go) ──────┘
//
// It pulls nothing and implements no policy. Package images does that, through the Keyring
// interface that it declares.
//
// Promises:
//
//   - A source that fails costs only its own credentials; the error
//     names it, and the credentials of the others are still returned.
//   - One process per plugin and image at a time; responses are cached for as
//     long as they say, in memory only.
//   - No error and no event quotes a credential; what a plugin writes to its
//     standard error goes to podd's log only.
package credentials
