// Package quota gets the disk usage of a directory from the kernel, on file systems with
// project quotas (ext4, xfs), instead of walking the tree.
//
// An empty directory is assigned a project ID of its own, which everything created in it
// inherits. The file system then accounts usage by that ID, including files that are
// deleted but still open. No limit is set: as in upstream (KEP-1029), quotas only monitor.
//
// # Which pods it is safe for
//
// The owner of a file may change its project ID, and so take the file out of the
// accounting, unless the owner is in a user namespace, where the kernel rejects that.
// Callers must therefore use this only for pods with hostUsers: false, as upstream does.
//
// # Where the ID is stored
//
// The ID is stored in the directory's inode only, so it survives a restart of podd. The
// quota's inode count says which IDs are in use: it includes the directory as long as that
// exists, and becomes zero when the last file with the ID is deleted. IDs with a limit, and
// those in /etc/projects and /etc/projid, belong to others and are not used. A directory
// that already inherits a project keeps it, so that the project's limit still applies to
// it.
package quota
