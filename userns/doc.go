// Package userns gives each pod with hostUsers: false a range of the node's user
// and group IDs of its own, onto which the runtime maps the IDs in the pod: root
// in such a pod is nobody outside of it, and nobody in any other pod.
//
// It owns <root-dir>/pods/<uid>/userns, one small file in upstream's format
// (pkg/kubelet/userns), which is the record: it is read back at start, lives as
// long as the pod's directory and goes with it. Nothing has to be given back: a
// range is free when the file is gone.
//
// It leaves to others: whether the runtime can do it and what the request says
// (cri), when the directory goes (volumes, asked by agent).
//
// # Promises
//
//   - Two pods never hold overlapping ranges, over any restart, even with another
//     length configured meanwhile. While a record cannot be read, no new range is
//     given out, since that one might be it: those who have theirs keep it.
//   - A range that became free is the last to be used again.
//   - The node's own IDs, those below the first range, are never given to a pod.
//
// All methods of Allocator are safe for concurrent use.
package userns
