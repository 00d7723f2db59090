package pod

import "errors"

// ErrNoStats says that nobody but the file system knows how full a volume is.
var ErrNoStats = errors.New("nobody but the file system measures the volume")

// VolumeStats are what a driver says of a volume that it makes, in bytes and inodes;
// 0 where it says nothing.
type VolumeStats struct {
	AvailableBytes, CapacityBytes, UsedBytes int64
	InodesFree, Inodes, InodesUsed           int64
	// Condition is nil where the driver does not watch it.
	Condition *VolumeCondition
}

// VolumeCondition is how well a volume is.
type VolumeCondition struct {
	Abnormal bool
	// Message is the driver's; it may be empty.
	Message string
}
