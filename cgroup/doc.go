// Package cgroup knows the control groups of this machine: which version and
// driver (Detect), where each pod's group is (Parent, by QoS class) and how to
// remove it when the pod is gone (Tree).
//
// The runtime makes the groups; this package makes none. All of podd's are under
// one root, so that nothing else on the machine is ever looked at:
//
//	cgroupfs: <root>/pod<uid>  <root>/burstable/pod<uid>  <root>/besteffort/pod<uid>
//	systemd:  podd-kubepods-pod<uid>.slice  podd-kubepods-burstable-pod<uid>.slice …
//
// Promises: no process is ever killed or moved, and a group that still has one is
// left alone with an error. Everything may be called from any goroutine.
package cgroup
