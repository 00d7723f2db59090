// Package pod has the types that podd's packages share: desired pods (Desired, Update),
// what the runtime reports (Observed), what a worker passes to other packages
// (SandboxRequest, ContainerRequest) and gets from them (SandboxInputs, ContainerInputs,
// ImageState, Mount), its reports (Report), and the classes of errors. It also has
// everything that follows from a Pod alone and on which the packages must agree: its
// containers and their kinds, its QoS class, when it restarts, its annotations.
//
// It has only values: no I/O, no goroutines, no locks. Siblings (agent, cri, status,
// volumes …) never import one another; they share these types, and node wires them.
//
// Values are read-only for the receiver unless a comment says otherwise. A *v1.Pod in
// particular is shared by many goroutines: copy it before changing it.
package pod
