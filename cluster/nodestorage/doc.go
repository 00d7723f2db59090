// Package nodestorage is what the node of a cluster and the cluster tell each other about
// attached volumes and CSI drivers.
//
//	csi ── in use ──► nodestatus ──► Node.status.volumesInUse      nobody may detach these
//	csi ◄── Attached ◄── Node.status.volumesAttached, VolumeAttachment   what the cluster attached
//	csi ── Registered ──► CSINode, the Node's annotation and topology labels
//
// It makes no decision about volumes: which ones are in use, and when they are mounted, is up
// to package csi, and when they are attached and detached up to the cluster.
package nodestorage
