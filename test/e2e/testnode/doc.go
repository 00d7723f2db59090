// Package testnode gives a test or a benchmark a node of its own on a machine
// that others use too: a numbered place with directories, ports, a bridge, a
// subnet and a cgroup root, a containerd with the bundled runc and CNI plugins
// in it, and podd on top.
//
// It starts real things only. What it needs is the bundle that `make runtime`
// builds, the binary podd, Linux and root.
//
// The second half of the package is Snapshot: everything that a pod may leave
// behind on the node (sandboxes, containers, network namespaces, veths,
// addresses, mounts, cgroups, packet filter chains and rules, processes,
// directories), as lines that can be compared. Only what belongs to the place
// counts, so that a neighbour's pods are never taken for a leak.
//
// Functions here poll where the kernel or the runtime offers no event; that is
// allowed in tests only.
package testnode
