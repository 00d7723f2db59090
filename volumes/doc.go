// Package volumes sets a pod's volumes up on the host, determines how they are
// mounted into its containers, and tears them down.
//
// It owns <root-dir>/pods/<uid>/, whose layout is podfs.Dirs: it creates the
// directory and what volumes need in it, and finally deletes all of it, including the
// files of podfs.
//
// It leaves to others: mounting into the container (the runtime does that, called by
// cri), the size of emptyDirs on disk (package usage measures them, and all that a pod
// takes; a sizeLimit is enforced here on tmpfs only), and all decisions when.
//
// # Promises
//
//   - The record is the mount table and the directory tree. Nothing else is
//     kept, so Ensure and TearDown after a crash are the same as at first.
//   - Ensure waits for a moment only. A set-up that takes longer goes on beside the
//     pod's syncs, and its end wakes the pod. A volume that hangs or fails keeps no
//     other of its pod from being set up. One that hangs holds up its own pod alone, and
//     not that one's end: TearDown gives it up, deletes nothing under
//     it, and the rest is a PendingUnmount. The same holds for a subPath whose
//     volume hangs (Mounts). What is waited for, since when, and behind which mount,
//     the state, the event and the PendingUnmount say.
//   - TearDown unmounts what the mount table shows below the pod's directory,
//     then deletes the directory without ever crossing a mount. An unmount
//     that fails stops the deletion: what a mount leads to may be somebody's
//     data (kubernetes/kubernetes#60987). The pod ends all the same; what is
//     left is a PendingUnmount, shown by PendingUnmounts and retried by Run.
//   - No directory is orphaned under a running podd: whatever makes something in one
//     holds the pod's lock, which TearDown takes, and what TearDown does not remove is
//     a PendingUnmount. What an earlier podd left is found by the agent at its start,
//     and what it keeps then, as processes still run, again when those may have ended.
//   - The root directory is resolved once, in New, so that a root behind a
//     symbolic link compares equal to the mount table (kubernetes/kubernetes#51835).
//   - Volumes with values (configMap, secret, downwardAPI, projected) follow their
//     sources beside the syncs, also while another volume of the pod hangs:
//     Changed and Follow never wait, and however often
//     something changes, it is written as often as there is time for, and last with
//     what is newest. Readers see a version whole (package payload). What cannot be
//     brought up to date serves on, and so does what a pod has that is being stopped
//     (Stopping). The values of Secrets are on no disk, in no
//     error and in no log.
//   - Mount propagation works on a host whose mounts are private, too: a volume of
//     podd's own becomes a shared mount where a container asks for it, until the end
//     of the pod.
//   - A subPath cannot leave its volume, whatever links a container plants in
//     it: the kernel resolves it (openat2, RESOLVE_BENEATH) and what is mounted
//     is the file that was opened, not its name. While a container that mounts a part
//     of a volume with values starts (Hold), that volume stays as it is.
//
// All methods of Mounter are safe for concurrent use; calls for one pod wait for one
// another, calls for different pods do not (except for a slot among the set-ups in
// progress, which one that hangs frees).
//
// What a new kind of volume needs is in kind.go: a line in kinds, and a driver
// with set-up, refresh and teardown.
package volumes
