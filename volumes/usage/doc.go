// Package usage watches the emptyDirs on disk that have a sizeLimit, and says
// which one exceeds it; the agent ends its pod. A pod without such a volume has no
// part in it.
//
// It measures as du does: the blocks of all that lies in the volume's directory,
// not behind mounts, and not what was deleted and is still open. It is never done
// more often than every 10 s, the pace of upstream's eviction, and takes at most a
// fiftieth of the time: a tree that takes a second is looked at once in a minute.
// It ends as soon as the limit is exceeded, so what costs much is only a tree of
// very many small files below a large limit.
//
// On tmpfs and huge pages the kernel enforces the limit (package volumes).
package usage
