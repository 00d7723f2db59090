//go:build tools

// Package kubelet pins upstream's kubelet, the oracle of make parity. It is a
// module of its own so that the binary is linked from exactly the versions that
// upstream's release names, whatever podd itself uses.
package kubelet

import _ "k8s.io/kubernetes/cmd/kubelet"
