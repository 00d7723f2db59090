// Package records remembers which credentials podd used to pull the images of the node, so
// that a pod without them cannot use an image only because another pod's pull left it there
// (KEP-2535).
//
//	image_manager/pulling/sha256-…  an image with a pull that has begun and not ended yet
//	image_manager/pulled/sha256-…   an image, and who has pulled it under which name
//
// Both are below podd's root directory, in the format of the kubelet's own files of that
// name (ImagePullIntent and ImagePulledRecord of kubelet.config.k8s.io/v1beta1), so that a
// node keeps them when it changes from one to the other. Of the credentials, they contain
// only the Secret's name and UID, and a hash with a key that is never on a disk. With an
// unkeyed hash, such as the kubelet's, anybody who reads a backup of the disk could try
// passwords against it.
//
// Promises:
//
//   - The pull is on the disk before it begins. So an image that arrives while podd
//     is being killed counts as pulled, by nobody, and never as one that was there before.
//   - If a record cannot be read, the pod must show its credentials.
//   - No answer waits for a registry, a plugin or the runtime.
package records
