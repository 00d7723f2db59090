package threshold

import (
	v1 "k8s.io/api/core/v1"
)

// Signal is what a threshold is about, by the kubelet's name (pkg/kubelet/eviction/api).
type Signal string

// The signals. They are in bytes, except for inodes and process IDs.
const (
	// MemoryAvailable is the machine's memory without the working set of everything.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is what is left of the memory limit of all pods together.
	// If the pods are held to that limit, evictionHard's memory.available counts for it,
	// too.
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
	// given and count for nothing, as with the kubelet: the layers are where the images
	// are.
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is how many more tasks the kernel allows.
	PIDAvailable Signal = "pid.available"
)

// The resources that are none of the API's; they stand in messages.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

// signalInfo is what a signal is about.
type signalInfo struct {
	signal    Signal
	resource  v1.ResourceName
	condition v1.NodeConditionType
	// urgency is the place among those that are met at once, as upstream's: memory first, and
	// inodes last; 0 for one that counts for nothing.
	urgency int
}

// signalTable has the signals in the order in which the configuration lists them. Package
// eviction knows how to measure each (meter.go).
var signalTable = []signalInfo{
	{MemoryAvailable, v1.ResourceMemory, v1.NodeMemoryPressure, 1},
	{NodeFSAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure, 4},
	{NodeFSInodesFree, ResourceInodes, v1.NodeDiskPressure, 6},
	{ImageFSAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure, 5},
	{ImageFSInodesFree, ResourceInodes, v1.NodeDiskPressure, 7},
	{ContainerFSAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure, 0},
	{ContainerFSInodesFree, ResourceInodes, v1.NodeDiskPressure, 0},
	{AllocatableMemoryAvailable, v1.ResourceMemory, v1.NodeMemoryPressure, 2},
	{PIDAvailable, ResourcePIDs, v1.NodePIDPressure, 3},
}

// Signals are all of them, in the order in which the configuration lists them.
var Signals = signals()

func signals() (all []Signal) {
	for i := range signalTable {
		all = append(all, signalTable[i].signal)
	}
	return all
}

// info is zero for a signal that does not exist.
func (s Signal) info() signalInfo {
	for i := range signalTable {
		if signalTable[i].signal == s {
			return signalTable[i]
		}
	}
	return signalInfo{}
}

// Resource is what runs short when the signal is low.
func (s Signal) Resource() v1.ResourceName { return s.info().resource }

// Condition is the Node's under which this is shown.
func (s Signal) Condition() v1.NodeConditionType { return s.info().condition }

// Ignored says that the signal may be given and counts for nothing.
func (s Signal) Ignored() bool { r := s.info(); return r.signal != "" && r.urgency == 0 }

func (s Signal) urgency() int { return s.info().urgency }
