// Package archive brings the archives of the image directory into the runtime:
// at start, when a file appears or changes, and again when the runtime has lost
// what a file holds.
//
//	watch (inotify) ──► Dir.Run ──scan──► files that are complete ──► Importer (Containerd) ──► pinned images
//	                       │                                             transfer service, a stream of 32 KiB messages
//	                       └── state: file, digest, names of its images, in --root-dir
//
// Containerd speaks containerd's own API on CRI's socket, for CRI has no call for
// an import. What that API tells of pulls (Receiving) is read here too.
//
// Promises:
//
//   - An archive is imported once, however often podd starts, as long as its
//     content is the same and the runtime has its images.
//   - A file is not read while it is being written.
//   - A file that is no archive is a problem with its name, reported once, and delays
//     no other.
//   - The images are pinned: no garbage collection takes them. Removing the file
//     does not remove the image.
package archive
