// Package records remembers by whose credentials podd pulled the images of the node, so
// that a pod without these cannot use an image only because another pod's pull left it
// there (KEP-2535).
//
//	image_manager/pulling/sha256-…  an image whose pull has begun, and did not end yet
//	image_manager/pulled/sha256-…   an image, and who has pulled it under which name
//
// Both below podd's root directory, in the format of the kubelet's own files of that name
// (ImagePullIntent and ImagePulledRecord of kubelet.config.k8s.io/v1beta1), so that a node
// keeps them when it changes from one to the other. What they contain of credentials is
// the Secret's name and UID, and a hash with a key that is never on a disk: an unkeyed one,
// as the kubelet's, lets whoever reads a backup of the disk try passwords against it.
//
// Promises:
//
//   - The pull is on the disk before it begins, so that an image that arrives while podd
//     is being killed counts as pulled, by nobody, and never as one that was there before.
//   - A record that cannot be read means that the pod must show its credentials.
//   - No answer waits for a registry, a plugin or the runtime.
package records
