// Package nodeshutdown ends the pods of this node, each within its grace period, when the machine
// goes down (KEP-2000, KEP-2712).
//
// There are two ways to learn that, and each of them suffices:
//
//   - The Manager's OnStop, when podd is stopped: systemd stops podd because it stops everything.
//     This comes before it stops the runtime and the network, and needs neither D-Bus nor logind.
//   - logind's signal PrepareForShutdown, while podd holds a delay inhibitor, as the kubelet. It
//     comes before anything is stopped, and may be called off. podd only asks for it if the
//     configuration has a period for pods to end in.
//
// Which pods end when, and how long they have, is in periods.go, which is pure.
package nodeshutdown
