// Package nodestatus maintains this node's Node object in an apiserver, and its Lease.
//
//	Facts ─┐
//	State ─┴─► compute (pure) ──► Registrar ──create, patch──► apiserver
//	                                  ▲──────────watch────────────┘
//	           Lease ──create, update──► apiserver
//
// It owns what a Node says: labels, addresses, capacity, conditions, with the reasons and
// messages of the kubelet (pkg/kubelet/nodestatus), on which operators' tools match. It
// leaves to others what is true: node finds it out.
//
// A Node is registered once for each run of podd. The Lease says that podd lives, every
// ten seconds; the status is sent when it changes, and every five minutes, so that an idle
// node costs an apiserver next to nothing (KEP-589).
package nodestatus
