// Package credentials finds what a pull shows to its registry: the Secrets that
// the pod names (imagePullSecrets), the node's docker configuration, and
// credential provider plugins (KEP-2133), to be tried in this order.
//
//	Keyring.Lookup ──► Secrets ──► config.json, .dockercfg ──► Providers ──► plugin processes
//	                     └────────── index by registry and path (match.go) ──────┘
//
// It pulls nothing and decides no policy: package images does, through the
// interface Keyring that it declares.
//
// Promises:
//
//   - A source that cannot be asked costs only its own credentials; the error
//     names it, and what the others gave is returned all the same.
//   - One process of a plugin for one image at a time; its answers are cached as
//     long as they say, in memory only.
//   - No error and no event quotes a credential; what a plugin wrote to its
//     standard error goes to podd's log alone.
package credentials
