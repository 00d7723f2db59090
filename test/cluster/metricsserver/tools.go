//go:build tools

// Package metricsserver makes a module of upstream's metrics-server, so that it is built
// from exactly the versions that its go.sum names: what kubectl top and autoscalers ask
// about a node's pods.
package metricsserver

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
