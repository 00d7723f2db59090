// Package podfs is what podd keeps on the host for pods, beside their volumes:
// where it is (Dirs), the hosts file, the termination logs, what a container's
// end needs, and the log directories with the links to them (Files).
//
//	dirs.go         the layout of a pod's directory and of the log directories
//	lognames.go     the names of logs, and of the links to them
//	prepare.go      what is made before a container, and removed if none is made
//	kept.go         what a container's end needs when its manifest is gone
//	termination.go  reading what a container may have replaced
//	logs.go         links in /var/log/containers; logs that nobody needs any more
//
// It leaves to others: what the hosts file says (podenv), the content of volumes
// and the removal of a pod's directory (volumes), the rotation of logs
// (logrotate). It knows no runtime: what is observed there is told to it.
//
// Promises: containers own some of the files. They are never trusted to be what
// podd made: no symlink is followed below the root, nothing but regular files is
// read, and no more of them than is needed. Files may be used by any number of
// goroutines.
package podfs
