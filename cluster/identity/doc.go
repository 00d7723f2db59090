// Package identity requests and renews this node's certificates: the one by which it is a
// client of its apiserver, and the one by which it serves the kubelet's API.
//
//	key ─► CertificateSigningRequest ─► somebody approves, a signer issues ─► Store ─► Config.Issued
//
// Promises:
//
//   - A certificate is renewed at 70 to 90 % of its life, when what it must say changes, and
//     at once where there is none.
//   - A key has one request, under a name that follows from both, and is on disk until that
//     is decided: a podd that is restarted meanwhile goes on waiting for the same request.
//   - Files are as the kubelet's (PREFIX-current.pem links to PREFIX-TIME.pem), so that
//     either agent goes on with what the other has left.
//   - Nothing is polled: a request is followed by a watch.
package identity
