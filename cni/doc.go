// Package cni owns what is around the pod network: the default network's
// configuration (bridge, host-local, portmap), the rules of the node that all of
// it shares, readiness, and what sandboxes that died left behind.
//
//	containerd ──ADD, DEL──► bridge ──► host-local      one veth and one lease a pod
//	                         portmap                    rules only for hostPorts
//	podd       ──once──────► masquerade, ip_forward, FORWARD accept, no way to the node's loopback
//	podd       ──rarely────► Collect: leases, attachments, namespaces of nobody
//
// The runtime alone calls ADD and DEL for a sandbox that it knows; this package
// calls DEL only for one that the runtime does not know.
//
// Where the time of a pod's start goes decides the defaults: plugins are
// processes. Hence one masquerade rule for the whole pod CIDR instead of one a
// pod (an iptables lock each), no firewall plugin (its two rules for all pods are
// made once, and only where something drops forwarded packets), and portmap told
// which packet filter to use, the one that podd uses. Numbers: docs/adr/0008.
//
// An administrator's own network wins: any configuration in the same directory
// whose name sorts before 99-podd.conflist.
package cni
