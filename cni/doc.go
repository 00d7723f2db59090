// Package cni owns what is around the pod network: the default network's configuration
// (bridge, host-local, portmap), the rules of the node that all its pods share,
// readiness, and what sandboxes that died left behind.
//
//	containerd ──ADD, DEL──► bridge ──► host-local      one veth and one lease a pod
//	                         portmap                    rules only for hostPorts
//	podd       ──once──────► masquerade, ip_forward, FORWARD accept, no way to the node's loopback
//	podd       ──rarely────► Collect: leases, attachments, namespaces of nobody
//
// The runtime alone calls ADD and DEL for a sandbox that it knows; this package
// calls DEL only for one that the runtime does not know.
//
// Plugins are processes, and their time is part of a pod's start. That decides the
// defaults: one masquerade rule for the whole pod CIDR instead of one a pod (an iptables
// lock each), no firewall plugin (podd makes its two rules for all pods once, and only
// where something drops forwarded packets), and portmap is told which packet filter to
// use, the one that podd uses. Numbers: docs/adr/0008.
//
// An administrator's own network wins: any configuration in the same directory with a
// name that sorts before 99-podd.conflist.
package cni
