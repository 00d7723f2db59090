// Package cluster is a control plane for tests: upstream's kube-apiserver with an
// etcd in its own process (apiserver/, a module of its own), and just enough of a
// client to give it documents.
//
// There is no scheduler and no controller manager: what a test wants bound to a node
// says so (spec.nodeName), service accounts and their tokens do not exist, and
// nothing collects what somebody left. Whoever has the token may do everything; it is
// in the directory of the apiserver, which goes with the test.
//
// make parity builds the binary once, and keeps it beside upstream's kubelet.
package cluster
