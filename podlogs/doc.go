// Package podlogs reads the logs of containers, which the runtime writes in CRI's format
// (a line each: time, stream, tag, text) and podd rotates.
//
//	file ──lines──► Reader ──text──► stdout, stderr
//	 ▲ renamed by rotation, and made anew
//
// It owns what the options of kubectl logs mean for these files, and following one across
// rotations without losing a line or telling one twice (kubernetes/kubernetes#115701). It
// leaves to others which file is a container's, and when a container has ended.
//
// Like the kubelet it reads the newest file only: rotated ones are for whoever reads the
// directory.
package podlogs
