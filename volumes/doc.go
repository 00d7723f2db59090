// Package volumes makes a pod's volumes exist on the host, says how they are
// bound into its containers, and takes them away again.
//
// It owns <root-dir>/pods/<uid>/:
//
//	volumes/<plugin>/<name>                       content of volumes that live with the pod
//	volume-subpaths/<volume>/<container>/<index>  bind mounts of subPath mounts
//	containers/<name>/  etc-hosts                 written by cri, deleted here
//
// It leaves to others: binding into the container (the runtime does it, asked
// by cri), the size of emptyDirs on disk (eviction measures them; a sizeLimit
// is enforced here on tmpfs only), and every decision when.
//
// # Promises
//
//   - The record is the mount table and the directory tree. Nothing else is
//     kept, so SetUp and TearDown after a crash are the same as at first.
//   - TearDown unmounts what the mount table shows below the pod's directory,
//     then deletes the directory without ever crossing a mount. An unmount
//     that fails stops the deletion: what a mount leads to may be somebody's
//     data (kubernetes/kubernetes#60987). The pod ends all the same; what is
//     left is a Debt, shown by Debts and retried by Run.
//   - The root directory is resolved once, in New, so that a root behind a
//     symbolic link compares equal to the mount table (kubernetes/kubernetes#51835).
//   - A subPath cannot leave its volume, whatever links a container plants in
//     it: the kernel resolves it (openat2, RESOLVE_BENEATH) and what is mounted
//     is the file that was opened, not its name.
//
// All methods of Mounter are safe for concurrent use; calls for one pod wait
// for one another, calls for different pods never do.
//
// A new kind of volume is a type that implements kind and a line in the list
// that New makes.
package volumes
