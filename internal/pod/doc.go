// Package pod holds the words that podd's packages share when they speak of a
// pod: what is wanted (Desired, Update), what the runtime says (Observed), what
// a worker asks of its neighbours (SandboxRequest, ContainerRequest) and gets of
// them (SandboxInputs, ContainerInputs, ImageState, Mount), what it tells them
// (Report), the classes of errors, and what follows from a Pod alone, in which
// they must agree: its containers and their kinds, its QoS class, when it
// restarts, what its annotations say.
//
// It owns values only: no I/O, no goroutines, no locks. Packages that are
// siblings (agent, cri, status, volumes …) never import one another; they meet
// through these types, and node wires them.
//
// Values handed over are read-only for the receiver unless a comment says
// otherwise. A *v1.Pod in particular is shared by many goroutines: copy it
// before changing it.
package pod
