// Package objects stores the ConfigMaps, Secrets, PersistentVolumes and claims that pods
// need, and notifies pods when their objects change. The objects come from the sources of
// manifests; other packages use them (variables, volumes, pulls).
//
//	podconfig ─Replace─► Store ─ConfigMap, Secret, Claim─► podenv, volumes, images/credentials
//	                      │ ▲
//	        Changed(uid) ─┘ └─ Register, Unregister ─ agent's workers
//
// Promises:
//
//   - Nothing is polled: a Replace notifies the registered pods that reference an object
//     that was added, changed or removed, and no others.
//   - Listeners are called from Run's goroutine only, without locks held; changes that
//     occur during a call are coalesced into one further call.
//   - A pod that is registered before it reads an object is notified of every later
//     change of it.
//   - Package claims binds claims to volumes whenever volumes or claims change. A binding
//     is on disk before a pod uses it (Use).
//   - An immutable object keeps its content until it is removed, as the API promises.
//   - No error, log, metric or list contains a value of a Secret.
//
// An apiserver has more objects than one node needs. podd watches only the objects that
// registered pods reference, from the first Register to the last Unregister.
package objects
