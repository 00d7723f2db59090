// Package nodestatus maintains this node's Node object in an apiserver, and its Lease.
//
//	Facts ─┐
//	State ─┴─► compute (pure) ──► Registrar ──create, patch──► apiserver
//	                                  ▲──────────watch────────────┘
//	           Lease ──create, update──► apiserver
//
// It owns the content of a Node: labels, addresses, capacity, and conditions with the kubelet's
// reasons and messages (pkg/kubelet/nodestatus), which operators' tools match. It does not find
// out the facts: package node does that.
//
// A Node is registered once for each run of podd. The Lease shows every ten seconds that podd
// lives. The status is sent when it changes, and every five minutes, so that an idle node costs
// an apiserver next to nothing (KEP-589).
package nodestatus
