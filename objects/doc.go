// Package objects has the ConfigMaps, Secrets, PersistentVolumes and claims that pods
// need, and tells whose changed. It is told all of them by the sources of manifests; what they are used
// for (variables, volumes, pulls) is others' matter.
//
//	podconfig ─Replace─► Store ─ConfigMap, Secret, Claim─► podenv, volumes, images/credentials
//	                      │ ▲
//	        Changed(uid) ─┘ └─ Register, Unregister ─ agent's workers
//
// Promises:
//
//   - Nothing is polled: a Replace tells each registered pod that names an object
//     which came, changed or went, and no other.
//   - Listeners are called from Run's goroutine alone, outside locks; changes that
//     come while one is called make one call together.
//   - Who was registered before it read an object hears of every later change of it.
//   - Which claim has which volume is decided by package claims, whenever volumes or
//     claims change; it is on disk before a pod uses one (Use).
//   - An immutable object keeps its content until it goes, as the API promises.
//   - No error, log, metric or list has a value of a Secret.
//
// Of an apiserver, which has more objects than one node needs, only those will be
// watched that a registered pod names: from its first Register to its last
// Unregister.
package objects
