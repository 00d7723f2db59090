// Package dra gives pods the devices of their ResourceClaims, as the kubelet's DRA manager
// does (KEP-4381). Drivers register. They prepare the claims that a scheduler has allocated
// before a pod's sandbox is made, and unprepare them when the pods that share them no
// longer run. It serves a node of a cluster: without a cluster there are no claims.
//
// It leaves to others: watching plugins_registry (package registry), when a pod is set up
// and when it has ended (the agent), and what the runtime does with the names of CDI
// devices.
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
//   - If a claim fails before its drivers are called, that leaves no trace: such a pod can
//     be deleted without them. From the first call on, the checkpoint names pod and claim: a
//     restarted podd unprepares what its predecessor may have prepared.
//   - Prepare and Unprepare block, 45 s for each driver at most, or until ctx ends. No other
//     method does. Calls about one claim are made one after the other, and no lock is held
//     during a call: a driver that hangs delays only the pods that use its claims.
//   - For pods without claims, podd requests nothing from an apiserver and polls nothing. At
//     the start, it deletes the node's ResourceSlices once: which drivers come back is unknown.
//   - What drivers and the apiserver send is bounded in size and number, and checked.
//
// All methods are safe for concurrent use.
package dra
