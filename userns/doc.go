// Package userns allocates to each pod with hostUsers: false its own range of the node's
// user and group IDs. The runtime maps the IDs in the pod to that range: root in such a
// pod is an unprivileged user outside of it, and in no other pod.
//
// It owns <root-dir>/pods/<uid>/userns, one small file in upstream's format
// (pkg/kubelet/userns), which is the record: it is read back at start, and removed with
// the pod's directory. Nothing has to be released: a range is free when the file is
// gone.
//
// It leaves to others: whether the runtime supports it and what the request contains
// (cri), and when the directory is removed (volumes, called by agent).
//
// # Promises
//
//   - The ranges of two pods never overlap, across restarts and changes of the
//     configured length. While a record cannot be read, no new range is allocated,
//     since it might be that one; existing ranges stay.
//   - A freed range is the last one to be allocated again.
//   - The node's own IDs, those below the first range, are never allocated.
//
// All methods of Allocator are safe for concurrent use.
package userns
