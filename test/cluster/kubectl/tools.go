//go:build tools

// Package kubectl pins upstream's kubectl, by which the tests of a node of a cluster do what
// people do. It is a module of its own, so that it is linked from exactly the versions that
// upstream's release names.
package kubectl

import _ "k8s.io/kubernetes/cmd/kubectl"
