// Package archive imports the archives of the image directory into the runtime: at start,
// when a file appears or changes, and again when the runtime has lost an archive's images.
//
//	watch (inotify) ──► Dir.Run ──scan──► files that are complete ──► Importer (Containerd) ──► pinned images
//	                       │                                             transfer service, a stream of 32 KiB messages
//	                       └── state: file, digest, names of its images, in --root-dir
//
// Containerd uses containerd's own API on CRI's socket, since CRI has no call for imports.
// That API also has the progress of pulls; it is read here, too (DownloadProgress).
//
// Promises:
//
//   - An archive is imported once, across restarts of podd, as long as its
//     content is unchanged and the runtime has its images.
//   - A file is not read while it is being written.
//   - A file that is not an archive is reported once, as a problem, and delays
//     no other.
//   - The images are pinned against garbage collection. Removing the file
//     does not remove the image.
package archive
