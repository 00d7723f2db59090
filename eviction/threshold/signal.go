package threshold

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Signal is what a threshold is about, by the kubelet's name (pkg/kubelet/eviction/api).
type Signal string

// The signals. Bytes, but for inodes and process IDs.
const (
	// MemoryAvailable is the machine's memory without the working set of everything.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is what the limit of all pods together leaves of memory;
	// where the pods are held to it, evictionHard's memory.available counts for it, too.
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	// NodeFSAvailable and NodeFSInodesFree are of the file system with the pods' volumes
	// and logs.
	NodeFSAvailable  Signal = "nodefs.available"
	NodeFSInodesFree Signal = "nodefs.inodesFree"
	// ImageFSAvailable and ImageFSInodesFree are of the runtime's file system: images and
	// writable layers. It may be the same one.
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	// ContainerFSAvailable and ContainerFSInodesFree are of writable layers. They may be
	// given and count for nothing, as with the kubelet: layers are where images are.
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is how many more tasks the kernel allows.
	PIDAvailable Signal = "pid.available"
)

// Signals are all of them, in the order in which the configuration lists them.
var Signals = []Signal{
	MemoryAvailable, NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ImageFSInodesFree,
	ContainerFSAvailable, ContainerFSInodesFree, AllocatableMemoryAvailable, PIDAvailable,
}

// The resources that are none of the API's; they stand in messages.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

// Resource is what runs short when the signal is low.
func (s Signal) Resource() v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.ResourceMemory
	case NodeFSAvailable, ImageFSAvailable, ContainerFSAvailable:
		return v1.ResourceEphemeralStorage
	case PIDAvailable:
		return ResourcePIDs
	}
	return ResourceInodes
}

// Condition is the Node's under which this is shown.
func (s Signal) Condition() v1.NodeConditionType {
	switch s.Resource() {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case ResourcePIDs:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// Ignored says that a threshold of the signal counts for nothing.
func (s Signal) Ignored() bool { return s == ContainerFSAvailable || s == ContainerFSInodesFree }

// urgency is the order in which thresholds are relieved: memory first, as with the kubelet,
// which leaves the rest to chance.
func (s Signal) urgency() int {
	return slices.Index([]Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable, NodeFSAvailable, ImageFSAvailable, NodeFSInodesFree, ImageFSInodesFree,
	}, s)
}
