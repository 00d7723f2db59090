// Package volumes sets a pod's volumes up on the host, determines how they are
// mounted into its containers, and tears them down.
//
// It owns <root-dir>/pods/<uid>/ (podfs.Dirs defines the layout). It creates the directory
// and what volumes need in it, and finally deletes all of it, including the files of podfs.
//
// It leaves to others: mounting into the container (the runtime does that, called by
// cri), the size of emptyDirs on disk (package usage measures them and the rest of a
// pod's storage; here a sizeLimit is enforced on tmpfs only), and every decision about
// when to do what.
//
// # Promises
//
//   - The actual state is the mount table and the directory tree, and is stored
//     nowhere else. Ensure and TearDown therefore work the same after a crash.
//   - A volume that no container of the pod uses (pod.UsedVolumes) is not set up, whatever
//     is wrong with it.
//   - Ensure waits only briefly. A longer setup continues in the background, and wakes the
//     pod when it ends. A volume that hangs or fails does not keep the pod's other
//     volumes from being set up. A volume that hangs blocks only its own pod, and not
//     that pod's termination: TearDown abandons the setup, deletes nothing under it,
//     and leaves a PendingUnmount. The same holds for a subPath on a volume that hangs
//     (Mounts). The state, the event and the PendingUnmount all say which volume the pod
//     waits for, since when, and behind which mount.
//   - TearDown unmounts what the mount table shows below the pod's directory,
//     then deletes the directory without ever crossing a mount. An unmount
//     that fails stops the deletion: a mount may lead to somebody's data
//     (kubernetes/kubernetes#60987). The pod terminates anyway; the rest becomes a
//     PendingUnmount, which PendingUnmounts lists and Run retries.
//   - If podd mounted a volume and its server does not respond, that keeps no container of
//     an ending pod alive: AbortRequests makes the container's requests fail. The probe
//     with which podd finds that out keeps no mount busy.
//   - A running podd orphans no directory: whatever creates something in one holds
//     the pod's lock, which TearDown takes, and what TearDown cannot remove is a
//     PendingUnmount. When the agent starts, it finds what an earlier podd left. It keeps
//     what processes still use, and tries again once those may have ended.
//   - The root directory is resolved once, in New, so that a root behind a
//     symbolic link compares equal to the mount table (kubernetes/kubernetes#51835).
//   - Live volumes (configMap, secret, downwardAPI, projected) follow their sources
//     in the background, even while another volume of the pod hangs: Changed and Follow
//     never block, frequent changes are coalesced, and the newest is always written last.
//     Readers see whole versions only (package payload). A volume that cannot be updated
//     stays mounted with its last content, as do the volumes of a pod that is being
//     stopped (Stopping). The values of Secrets reach no disk, error or log.
//   - Mount propagation also works on a host with private mounts: where a container asks
//     for it, a volume below podd's root becomes a shared mount until the pod is torn down.
//   - A subPath cannot leave its volume, whatever links a container plants in
//     it: the kernel resolves it (openat2, RESOLVE_BENEATH), and podd mounts the
//     opened file, not its name. While a container that mounts a subPath of a
//     live volume starts (Hold), podd does not update that volume.
//
// All methods of Mounter are safe for concurrent use. Calls for one pod are
// serialized; calls for different pods are not, except that the number of concurrent
// setups is bounded (one that hangs gives its slot back).
//
// To add a kind of volume, see kind.go: a line in kinds, and a driver with setUp,
// refresh and tearDown.
package volumes
