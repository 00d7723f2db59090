package atomicfile

import "golang.org/x/sys/unix"

// InMemory says whether an existing directory is on a file system without a disk (tmpfs,
// ramfs): what is written to it reaches no disk, and a reboot loses it.
func InMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && (int64(fs.Type) == unix.TMPFS_MAGIC || uint32(fs.Type) == unix.RAMFS_MAGIC)
}
