// Package podstore keeps pods on disk, one file for each, <uid>.json. Only root may read
// them: a pod may contain passwords in env. The objects that a pod names, and its tokens,
// are not stored.
//
// A file is replaced in one step and has a checksum. A reader rejects a file that others
// may write, that is too long, or that has a path in place of a name.
//
// Any goroutine may call a Store; calls for the same pod must not be concurrent.
package podstore
