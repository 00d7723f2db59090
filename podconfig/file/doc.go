// Package file is the source of pods that reads manifests from a directory, or
// from a single file.
//
// It owns the choice of files (*.yaml, *.yml, *.json, *.manifest that do not begin with a dot),
// reading them without ever blocking on one (FIFOs, devices, directories, links that lead
// nowhere), the detection of changes, and the last good version of a manifest that broke.
// podconfig/manifest decides what a manifest means, and podconfig which of two pods with one
// name runs. Validate makes the same checks once and offline, for podd validate.
//
// How a change is detected:
//
//	rename into place, write and close, symlink, link ─► read at once
//	create ─► wait for the close that follows; check without a problem after 200 ms
//	modify ─► wait for the close that follows, at most 20 s after the last one
//	delete, rename away ─► gone if still away after 50 ms (editors replace files); a
//	deletion counts at once with DeleteImmediately, also if the file is back (the kubelet's way)
//	anything at all, or nothing ─► a rescan every CheckFrequency finds it too,
//	and checks again after the same times
//
// inotify is only a hint: the content of the directory at that time counts. Only files with a
// changed inode, size or times are read again, so one more file costs the same in a directory
// of three and of five hundred. A rescan finds changes that cause no notification: a file that
// is written through a mapping, or outside the directory (the target of a symlink).
//
// Promises about broken manifests: the good documents of a file apply. A pod with a broken
// document keeps its last good version if the document still says which pod it is. If any
// broken document does not, all earlier pods of the file stay. A pod is removed only if its
// file is gone, or if the file is good and no longer names it. With a StateDir the last good
// version also survives a restart of podd. A directory, or a single file, that cannot be read
// keeps everything; one that is gone for 2 s counts as empty. If a file would take the source
// over manifest.MaxPods (MaxObjects, MaxObjectBytes), that file counts as broken, not the
// others.
package file
