// Package images provides the images that containers need: their own, and those of the
// image volumes that they mount.
//
// Puller answers one question, Ensure: may this container be created now, from which image,
// with which volumes? It checks locally (at most one call per image) or reports that a pull
// is in progress; pulls run in the background and wake the waiting pods when they end.
//
// Subpackages: credentials finds the credentials of a pull, archive imports the archives of
// the image directory, records remembers which credentials pulled an image, gc removes
// unused images.
//
//	worker ──Ensure──► Puller ──ImageStatus──► runtime
//	                     │ queue ─► at most MaxParallel, and MaxPerRegistry of one registry
//	                     │          (long ones may be configured not to count)
//	   ▲                 ▼
//	   └──Wake── result, back-off per pod and image (10 s doubling to 300 s)
//
// Promises:
//
//   - Ensure never waits for a network, no matter what other pulls do.
//   - A registry that hangs or is slow never occupies all slots: pulls from others
//     overtake it in the queue.
//   - A pull that fails delays no other pod and no other image, and the message
//     says what caused it.
//   - One pull serves all pods that want the same image with the same
//     credentials at the same time; it is cancelled when no pod wants it
//     any longer.
//   - A pull has no deadline: the runtime cancels one that makes no progress
//     (containerd after 5 minutes), and only the runtime sees the progress.
package images
