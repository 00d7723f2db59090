// Package bundle owns the container runtime that comes with podd: containerd,
// its shim, runc and the CNI plugins, built by "make runtime" into one folder.
//
// It finds that folder (Find), writes containerd's configuration for this
// machine (Settings.WriteConfig), becomes containerd (Settings.Exec, behind
// "podd runtime") and keeps it running (Supervisor, inside "podd run").
//
//	podd run ── Supervisor ──adopts or starts──► podd runtime ──exec──► containerd ──► shims ──► pods
//
// Promises:
//   - One containerd per root and state directory (internal/instance): the second one
//     fails with the name of the first.
//   - Two instances with different directories share nothing but the kernel:
//     root, state, sockets, shim sockets and network namespaces are all separate.
//   - Stopping podd, by whatever signal, stops neither containerd nor a pod.
//
// CRI clients and the pod network are not this package's concern.
package bundle
