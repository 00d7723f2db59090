// Package podstore keeps pods on disk, one file for each, <uid>.json, that only root may
// read: a pod may contain passwords in env. Objects that a pod names, and its tokens, are
// not part of it.
//
// A file is replaced in one step and has a checksum. A reader takes none that others may
// write, that is too long, or in which a name is a path.
//
// Any goroutine may call a Store; calls for the same pod must not be concurrent.
package podstore
