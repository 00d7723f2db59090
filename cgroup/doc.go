// Package cgroup owns the cgroups above podd's containers: it detects the cgroup
// version and driver of the machine (Detect), names each pod's cgroup (Parent),
// computes its limits (PodLimits), attributes OOM kills to containers (OOMDetector),
// and manages the cgroups themselves (Tree): created before the pod's sandbox,
// updated when the pod is resized, removed when the pod is gone. The cgroups of
// sandboxes and containers, below the pod's, belong to the runtime.
//
// All of podd's cgroups are below one root; nothing outside it is ever touched:
//
//	cgroupfs: <root>/pod<uid>  <root>/burstable/pod<uid>  <root>/besteffort/pod<uid>
//	systemd:  podd-kubepods-pod<uid>.slice  podd-kubepods-burstable-pod<uid>.slice …
//
//	<root>          limits all pods: CPU weight, memory and PIDs of the node's allocatable
//	├── pod<uid>    guaranteed
//	├── burstable   weight: the sum of its pods' requests
//	│   └── pod<uid>
//	└── besteffort  the minimum weight
//	    └── pod<uid>
//
// With MemoryQoS on cgroup v2, a pod's cgroup protects the memory that the pod requests. The
// burstable class, the root and podd's cgroups above the root protect the sums, because the
// kernel protects memory only if all cgroups above protect it, too.
//
// The values are the kubelet's (pkg/kubelet/cm). With the systemd driver they are set as
// properties of the slices, since systemd would revert what it does not know of, and also
// written to the cgroup files, since not every limit has a property.
//
// Promises: no process is moved, and only KillLeftover kills any; a cgroup that still has a
// process is left alone with an error. No call blocks for longer than the kernel and
// systemd take to respond. All functions are safe for concurrent use, but calls for one
// pod must not overlap.
package cgroup
