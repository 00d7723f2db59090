// Package cgroup owns the control groups above podd's containers: which version
// and driver the machine has (Detect), where each pod's group is (Parent), its
// limits (PodLimits), which containers the kernel killed for their memory
// (OOMWitness), and the groups themselves (Tree): made before the pod's
// sandbox, changed when the pod is resized, removed when it is gone. The groups
// of sandboxes and containers, below, are the runtime's.
//
// All of podd's are under one root, so that nothing else on the machine is ever
// looked at:
//
//	cgroupfs: <root>/pod<uid>  <root>/burstable/pod<uid>  <root>/besteffort/pod<uid>
//	systemd:  podd-kubepods-pod<uid>.slice  podd-kubepods-burstable-pod<uid>.slice …
//
//	<root>          bounds all pods: weight, memory, pids of what is allocatable
//	├── pod<uid>    guaranteed
//	├── burstable   weight: what its pods request together
//	│   └── pod<uid>
//	└── besteffort  the least weight
//	    └── pod<uid>
//
// The values are the kubelet's (pkg/kubelet/cm). With the systemd driver they are
// told to systemd, which would undo what it does not know, and written as well,
// since it has no words for all of them.
//
// Promises: no process is ever killed or moved, and a group that still has one is
// left alone with an error. No call blocks for longer than the kernel, and
// systemd, take to answer. Everything may be called from any goroutine, but for
// one pod one call at a time.
package cgroup
