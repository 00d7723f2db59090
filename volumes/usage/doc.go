// Package usage measures the disk usage of pods: their volumes, the writable layers, logs
// and termination logs of their containers, and the files that podd makes for them. What
// counts is one list (contents.go). It has two purposes.
//
// Limits that the kernel does not enforce: the sizeLimit of emptyDirs on disk, and
// limits.ephemeral-storage of containers and pods, as in the kubelet's eviction manager.
// Meter.Watch says which limit a pod exceeds; the agent evicts the pod. A pod without
// such a limit is not watched. (On tmpfs and huge pages the kernel enforces the
// sizeLimit: package volumes.)
//
// Statistics: Meter.Pods and Meter.Claims measure on request only.
//
// # What is measured, and how often
//
// Directories are measured as du does: the blocks of everything in them, excluding mounts
// and files that are deleted but still open. Volumes that are mounts are measured with
// statfs. If a volume's CSI driver reports its usage, only the driver's numbers count:
// while the driver is unavailable, there are none, as with the kubelet.
//
// A directory is measured at most every 10 s for a limit, the period of upstream's eviction
// manager, and at most once a minute for statistics, upstream's volumeStatsAggPeriod.
// Measuring takes at most a fiftieth of the time: a tree that takes a second is measured
// about once a minute. A walk for a limit ends as soon as the limit is exceeded, so only a
// tree with very many small files below a large limit is expensive. The walk keeps some
// thousands of directories nested deeper than a hundred to count later. A tree with more
// exceeds its limit, since what is not counted would be free.
//
// An emptyDir of a pod in a user namespace is not walked if its file system has a
// project quota for it (package quota, Config.QuotaUsage), which also includes files that
// are deleted but still open. Pods outside of user namespaces could manipulate that
// count.
//
// The writable layer of a container is measured like any other directory if the runtime
// says where it is. Otherwise the runtime's own number is used, which may be stale. A
// caller of Meter.Runtime measures everything that the runtime keeps, including images, as
// rarely as everything else.
//
// A mount with a dead server blocks everyone who accesses it, and a driver may block until
// its call times out. A driver is asked about a few volumes at a time, independently of the
// others. Each volume is therefore measured in its own goroutine, at most one at a time.
// Callers wait briefly, and get the last known result or none.
package usage
