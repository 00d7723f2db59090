// Package usage measures what pods take of the node's disks: their volumes, the
// writable layers and logs of their containers, and their hosts files. On that rest
// two things.
//
// The limits that the kernel does not enforce: sizeLimit of emptyDirs on disk, and
// limits.ephemeral-storage of containers and pods, as the kubelet's eviction manager
// has them. Meter.Watch says which one a pod exceeds; the agent ends the pod. A pod
// without such a limit has no part in it. (On tmpfs and huge pages the kernel
// enforces the sizeLimit: package volumes.)
//
// Statistics: Meter.Pods and Meter.Claims measure when somebody asks, and at no other
// time.
//
// # What is measured, and how often
//
// Directories are measured as du does: the blocks of all that lies in them, not
// behind mounts, and not what was deleted and is still open. Mounts of their own are
// asked for their numbers (statfs). Of a volume that a CSI driver makes and measures
// the driver's numbers count, and no others: while it is away or does not answer,
// there are none, as with the kubelet. For a limit that is never done more often than
// every 10 s, the pace of upstream's eviction, and for statistics than once a minute,
// upstream's volumeStatsAggPeriod; and it takes at most a fiftieth of the time: a
// tree that takes a second is looked at once in a minute. A look for a limit ends as
// soon as the limit is exceeded, so what costs much is only a tree of very many small
// files below a large limit.
//
// An emptyDir of a pod in a user namespace need not be walked where its file system
// counts for itself (package quota, Config.Counted), which has also what was deleted and
// is still open. Other pods could change that count.
//
// The writable layer of a container is a directory as any other where the runtime
// tells where it is. Where only the runtime can say what it takes, its number counts,
// which may be as old as the runtime lets it become.
//
// A mount whose server is dead lets everybody hang who asks it, and so does a driver
// until its call's time is over. A driver is asked of a few volumes at a time, whatever
// others do. Each volume is therefore measured in a goroutine of
// its own, of which there is never a second one: who asks waits for a moment, and gets
// what was known before, or nothing.
package usage
