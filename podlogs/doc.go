// Package podlogs reads the logs of containers, which the runtime writes in CRI's format
// (a line each: time, stream, tag, text) and podd rotates.
//
//	file ──lines──► Reader ──text──► stdout, stderr
//	 ▲ renamed by rotation, and made anew
//
// It owns the meaning of the options of kubectl logs for these files, and following one
// across rotations without losing a line or repeating one (kubernetes/kubernetes#115701).
// It leaves to others which file is a container's, and when a container has ended.
//
// Like the kubelet it reads the newest file only; rotated ones remain for readers of the
// directory.
package podlogs
