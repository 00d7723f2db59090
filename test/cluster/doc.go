// Package cluster is a cluster for tests.
//
// APIServer is upstream's kube-apiserver with an etcd in its own process (apiserver/, a
// module of its own); Client is just enough of a client to give it documents. By itself
// it has no scheduler and no controller manager: what a test wants bound to a node says
// so (spec.nodeName), service accounts and their tokens do not exist, and nothing collects
// what somebody left. Whoever has the token may do everything; it is in the directory of
// the apiserver, which goes with the test.
//
// Whole is all of a cluster with one node: APIServer, Controllers (upstream's, of the
// module suite/) and podd or a kubelet on a test node. up/ starts one for a person (make
// cluster), and conformance/ runs upstream's end-to-end tests in it (make conformance).
//
// The Makefile builds the binaries once, and keeps them beside upstream's kubelet.
package cluster
