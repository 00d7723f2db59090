package pod

import "errors"

// ErrNoStats says that only the file system knows how full a volume is.
var ErrNoStats = errors.New("nobody but the file system measures the volume")

// VolumeStats are a driver's figures about one of its volumes, in bytes and inodes; 0 if it
// reports none.
type VolumeStats struct {
	AvailableBytes, CapacityBytes, UsedBytes int64
	InodesFree, Inodes, InodesUsed           int64
}
