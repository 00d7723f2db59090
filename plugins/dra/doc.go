// Package dra gives pods the devices of their ResourceClaims, as the kubelet's DRA manager
// does (KEP-4381): drivers register, prepare the claims that a scheduler has allocated before
// a pod's sandbox is made, and unprepare them when nothing of the pods that share them runs
// any more. It is for the node of a cluster: without one there are no claims.
//
// It leaves to others: who watches plugins_registry (package csi), when a pod is set up and
// when it has ended (the agent), and what the runtime makes of the names of CDI devices.
//
//	<root-dir>/dra.json   which pods use which claims, and what drivers prepared for them
//
// # A claim's way
//
//	allocated, reserved for the pod (the cluster) ─► referred to, written down ─► prepared by each driver ─► written down
//	                                                      │                                                      │
//	                                                      └──► the last pod has ended: unprepared by each driver ◄┘─► forgotten
//
// # Promises
//
//   - What is wrong with a claim before its drivers are called leaves no trace: such a pod can
//     be deleted without them. From the first call on, the checkpoint names pod and claim: a podd
//     that is restarted unprepares what its predecessor may have prepared.
//   - Prepare and Unprepare block, 45 s for each driver at most, or until ctx ends. No other
//     method does. Calls about one claim are made one after the other, and no lock is held
//     during a call: a driver that hangs delays the pods that use its claims.
//   - Nothing is requested of an apiserver and nothing is polled for pods without claims. At the
//     start, the node's ResourceSlices are deleted once: which drivers come back is not known.
//   - What drivers and the apiserver send is bounded in size and number, and checked.
//
// All methods are safe for concurrent use.
package dra
