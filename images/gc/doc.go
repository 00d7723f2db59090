// Package gc removes unused images: when their file system is nearly full, those unused for
// longest first, and at any time those that are too old.
//
//	Collector.Run, every 5 minutes ──► images and their users ──► input.removable   pure: which may be removed, in order
//	   ▲ NotifyDiskFull: a pull found the disk full                  │
//	                                                                 ▼
//	                                          remove one, check the file system, until there is room
//
// Promises:
//
//   - An image is never removed if a container, dead or alive, was created from it, if a
//     manifest names it or if the image directory holds it, whether it is used or not.
//   - Nothing is removed before every source of pods is ready.
//   - If other agents use the runtime too, only images that podd has used are
//     removed.
package gc
