//go:build tools

// Package deviceplugin pins upstream's sample device plugin, which the tests run as a pod. It
// is a module of its own, so that it is linked from exactly the versions that upstream's
// release names, and podd's module has none of them.
package deviceplugin

import _ "k8s.io/kubernetes/test/images/sample-device-plugin"
