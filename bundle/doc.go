// Package bundle owns the container runtime that comes with podd: containerd,
// its shim, runc and the CNI plugins, built by "make runtime" into one folder.
//
// It finds that folder (Find), writes containerd's configuration for this very
// machine (Settings.WriteConfig), becomes containerd (Settings.Exec, behind
// "podd runtime") and keeps it running (Supervisor, inside "podd run").
//
//	podd run ── Supervisor ──adopts or starts──► podd runtime ──exec──► containerd ──► shims ──► pods
//
// Promises:
//   - One containerd a root and a state directory (internal/places): whoever
//     comes second is told who is first.
//   - Two instances with different directories share nothing but the kernel:
//     root, state, sockets, shim sockets, network namespaces are all theirs.
//   - Stopping podd, by whatever signal, stops neither containerd nor a pod.
//
// What speaks CRI to it, and what its network looks like, is not known here.
package bundle
