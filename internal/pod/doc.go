// Package pod has the types that podd's packages share: what is desired (Desired,
// Update), what the runtime reports (Observed), what a worker passes to other
// packages (SandboxRequest, ContainerRequest) and gets from them (SandboxInputs,
// ContainerInputs, ImageState, Mount), its reports (Report), the classes of errors,
// and what follows from a Pod alone, on which they must agree: its containers and
// their kinds, its QoS class, when it restarts, its annotations.
//
// It has values only: no I/O, no goroutines, no locks. Siblings (agent, cri, status,
// volumes …) never import one another; they share these types, and node wires them.
//
// Values are read-only for the receiver unless a comment says otherwise. A *v1.Pod in
// particular is shared by many goroutines: copy it before changing it.
package pod
