// Package nodestorage exchanges the state of attached volumes and CSI drivers between a node
// and its cluster.
//
//	csi ── in use ──► nodestatus ──► Node.status.volumesInUse      nobody may detach these
//	csi ◄── WaitForAttach ◄── Node.status.volumesAttached, VolumeAttachment   what the cluster attached
//	csi ── Registered ──► CSINode, the Node's annotation and topology labels
//
// It makes no decisions about volumes. Package csi decides which ones are in use and when they
// are mounted; the cluster decides when they are attached and detached.
package nodestorage
