// Package claims decides which PersistentVolume a PersistentVolumeClaim has, as
// upstream's PV controller does where nothing is provisioned, and its scheduler for
// the one node that there is.
//
// It is pure: all documents, what was bound before and the node's labels in, what is
// bound out, with a sentence for each claim that is not. Who is told, what is kept on
// disk and what is mounted is others' matter (objects, volumes).
//
// # Rules
//
//   - A binding stays until the volume or the claim is gone for good, whatever is
//     edited: pods have written there. Only the volume's own claimRef can end it, by
//     naming another claim.
//   - A volume whose claim went is Released: it is kept for a claim of that name and
//     owner, and given to no other, as reclaim policy Retain has it. Whoever wants it
//     free takes the volume's document away, and adds it again.
//   - Claims that name their volume, and volumes that name their claim, come first;
//     what is left has the volume with the fewest access modes, of those the
//     smallest. A volume that cannot be used on this node is chosen only where the
//     claim or the volume names the other.
package claims
