// Package claims binds PersistentVolumeClaims to PersistentVolumes, as upstream's PV
// controller does without a provisioner, and upstream's scheduler with a single node.
//
// It is pure: the input is all volumes and claims, the existing bindings and the node's
// labels; the output is the new bindings, with a message for each claim that is not bound.
// Other packages do notifications, persistence and mounts (objects, volumes).
//
// # Rules
//
//   - A binding stays until both the volume and the claim are removed, no matter what is
//     edited, because pods have written to the volume. Only the volume's own claimRef can
//     end it, by naming another claim.
//   - A volume is Released when its claim is removed: as with reclaim policy Retain, it is
//     kept for a claim of the same name and owner, and not bound to any other. To make it
//     available again, remove the volume from the manifests and add it again.
//   - Claims that name their volume, and volumes that name their claim, are bound first;
//     the remaining claims get the volume with the fewest access modes, and among those
//     the smallest. A volume that cannot be used on this node is chosen only if the claim
//     or the volume names the other.
package claims
