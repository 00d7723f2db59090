// Package quota asks the kernel what a directory takes of its file system, where that
// has project quotas (ext4, xfs), instead of walking the tree.
//
// A directory gets a project ID of its own while it is empty, which all that is made in
// it inherits; the file system then counts by that ID, also what was deleted and is
// still open. No limit is set: as upstream (KEP-1029) quotas only measure.
//
// # Whose number is to be believed
//
// The owner of a file may change its project ID, and so take it out of the count,
// unless it is in a user namespace of its own: there the kernel refuses. Callers must
// therefore use this for pods with hostUsers: false alone, upstream's rule, too.
//
// # Where it is kept
//
// The ID is kept in the directory, and nowhere else, so that it survives podd. The file
// system's count says which IDs are in use: a directory of its own counts as long as it
// exists, and the last file of an ID that is deleted gives it back. IDs with a limit,
// and those in /etc/projects and /etc/projid, are somebody's and left alone; so is a
// directory in a project of somebody's, whose limit it is to count for.
package quota
