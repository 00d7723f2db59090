//go:build tools

// Package attacher makes a module of upstream's external-attacher, so that it is built from
// exactly the versions that its go.sum names: what has a CSI driver attach the volumes that
// the cluster's controller wants attached to a node.
package attacher

import _ "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"
