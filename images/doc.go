// Package images sees to it that containers have their images.
//
// Puller answers one question, Ensure: may this container be made now, of which
// image? It looks locally (one call at most) or says that a pull is under way;
// pulls happen in the background and end with a wake of the pods that wait.
// ImportDir brings in the archives of the image directory, pinned. NodeKeyring
// finds the credentials for a pull: those of the pod's Secrets, the node's docker
// configuration and credential provider plugins. Collector removes images that
// nobody uses when their disk runs full.
//
//	worker ──Ensure──► Puller ──ImageStatus──► runtime
//	                     │ queue ─► at most MaxParallel, and MaxPerRegistry of one registry
//	                     │          (those that take long may be set not to count)
//	   ▲                 ▼
//	   └──Wake── result, back-off per pod and image (10 s doubling to 300 s)
//
// Promises:
//
//   - Ensure never waits for a network, whatever other pulls do.
//   - One registry that hangs or is slow never holds all the places: pulls from
//     others pass it in the queue.
//   - What one pod could not pull delays no other pod and no other image, and
//     the message says whose fault it was.
//   - What a manifest names is never collected, used or not.
//   - One pull serves all pods that want the same image with the same
//     credentials at the same time; it is cancelled when none of them wants it
//     any more.
//   - A pull that goes on gets no deadline: the runtime ends one that makes no
//     progress (containerd after 5 minutes), and only it can see progress.
package images
