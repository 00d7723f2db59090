// Package file is the source of pods that reads manifests from a directory, or
// from a single file.
//
// It owns: which files count (*.yaml, *.yml, *.json, *.manifest that do not begin
// with a dot), reading them without ever blocking on one (FIFOs, devices, directories,
// links that lead nowhere), detecting changes, and the last good version of a
// manifest that broke. It leaves to others what a manifest means
// (podconfig/manifest) and which of two pods with one name runs (podconfig).
// Validate makes the same checks once and offline, for podd validate.
//
// How a change is detected:
//
//	rename into place, write and close, symlink, link ─► read at once
//	create ─► wait for the close that follows; check without a problem after 200 ms
//	modify ─► wait for the close that follows, at most 20 s after the last one
//	delete, rename away ─► gone if still away after 50 ms (editors replace files); a
//	deletion counts at once with GoneAtOnce, also if the file is back (the kubelet's way)
//	anything at all, or nothing ─► a rescan every CheckFrequency finds it too,
//	and checks again after the same times
//
// inotify is a hint: what counts is the content of the directory at that time.
// Only files whose inode, size or times changed are read again, so one more file
// costs the same in a directory of three and of five hundred. Changes without a
// notification are found by a rescan: a file that is written through a mapping, or
// outside the directory (the target of a symlink).
//
// Promises about broken manifests: the good documents of a file apply. A pod
// whose document broke keeps its last good version, when the document still
// says which pod it is; when any broken document does not, every pod that the
// file had before stays. Only a file that is gone, or a file that is good and
// no longer names the pod, removes a pod. With a StateDir the last good version
// survives a restart of podd, too. A directory, or a single file, that cannot be
// read keeps everything; one that is gone for 2 s is empty. A file with which the
// source would have more than manifest.MaxPods (MaxObjects, MaxObjectBytes) counts
// as broken, not the others.
package file
