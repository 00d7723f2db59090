// Package podfs manages the files that podd keeps on the host for pods besides their
// volumes: their layout (Dirs), and the hosts file, the termination logs, and the
// log directories with links (Files).
//
//	dirs.go         the layout of a pod's directory and of the log directories
//	lognames.go     the names of logs, and of the links to them
//	prepare.go      what is created before a container, and removed if that fails
//	termination.go  reading what a container may have replaced
//	logs.go         links in /var/log/containers; logs that are no longer needed
//
// It leaves to others: the content of the hosts file (podenv), the content of volumes
// and the removal of a pod's directory (volumes), the rotation of logs (logrotate). It
// calls no runtime: observations are passed to it.
//
// Promises: containers own some of the files, and they are never trusted to be what podd
// created: no symlink is followed below the root, only regular files are read, and no
// more of them than needed. Files is safe for concurrent use.
package podfs
