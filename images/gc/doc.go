// Package gc removes unused images: those unused for longest first when their file
// system runs full, and at any time those that are too old.
//
//	Collector.Run, every 5 minutes ──► images and their users ──► input.removable   pure: which may be removed, in order
//	   ▲ Soon: a pull found the disk full                            │
//	                                                                 ▼
//	                                          remove one, check the file system, until there is room
//
// Promises:
//
//   - An image that a container, dead or alive, was created from, that a manifest
//     names or that the image directory holds is never removed, used or not.
//   - Nothing is removed before every source of pods is ready.
//   - On a runtime that other agents use too, only images that podd has used are
//     removed.
package gc
