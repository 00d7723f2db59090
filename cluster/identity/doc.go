// Package identity requests and renews this node's two certificates. It is a client of its
// apiserver with one, and serves the kubelet's API with the other.
//
//	key ─► CertificateSigningRequest ─► somebody approves, a signer issues ─► Store ─► Config.Issued
//
// Promises:
//
//   - A certificate is renewed at 70 to 90 % of its life, when its required content changes,
//     and at once if there is none.
//   - A key has one request. The request's name follows from the key and the request's content.
//     The key stays on disk until the request is decided, so a podd that restarts meanwhile
//     goes on waiting for the same request.
//   - The files have the kubelet's layout (PREFIX-current.pem links to PREFIX-TIME.pem), so
//     that either agent can take over from the other.
//   - Nothing is polled: a watch follows the request.
package identity
