// Command parity runs the same pods on podd and on upstream's kubelet, each
// with a containerd of its own of the same configuration, and compares what a
// user of either sees. `make parity` builds both and runs it; README.md says how
// a scenario is written.
//
// # What is compared
//
// Three things, each a column of the table.
//
// Statuses. The poller reads /pods of both agents every 50 ms. Of each pod it
// keeps one sequence an axis: the phase with its reason, each condition's status
// and reason, and for each container its state with reason, exit code and
// restart count, its ready and its started. Axes are compared one by one,
// because two agents never take all steps in the same order across containers.
// The last status is compared whole and exactly, messages included.
//
// Events. For each pod and field path (spec.containers{app}) the events in the
// order of their first occurrence: type, reason and message. How often a repeat
// was seen depends on the moment of looking and is not compared.
//
// Traces. What the containers themselves wrote to /out/trace: the order in which
// they were started and stopped across a pod, what the kernel told them of their
// identity and limits, and what probes and hooks sent them.
//
// Times, IDs, addresses, ports and the places of the two nodes are set aside, and
// so is what gRPC puts before a runtime's error ("rpc error: code = Unknown desc =
// "), which the kubelet shows in some messages.
//
// # The rule for sequences
//
// The kubelet looks once a second, and later when many pods start at once, and
// shows what it saw: a state that lasted less may never be shown, another is shown
// late and for longer than it was; podd shows what happens when it happens. A state
// that was shown for less than blink (2.5 s) may therefore be missing on the other
// side. Everything that lasted longer must
// be in both sequences, in the same order, and what both show must not be
// swapped. The state at the end of the script counts as long.
//
// One pair of states counts as one: that a container has ended, and that it is in
// back-off after that end. The kubelet shows the first until it looks at the pod
// again, ten seconds and more later, podd the second at once. Which of the two is
// shown in the end is compared all the same.
//
// Nothing is seen of a pod whose manifest is gone: the kubelet stops listing it
// at once. What happens then is compared by events and traces.
//
// A scenario that differs is played a second time, with few beside it, and only
// the second time counts: a machine short of breath makes differences that are
// none.
//
// # Known differences
//
// differences.txt lists what differs on purpose, with the reason that a user is
// given. What differs and is not listed fails the run, and so does what is
// listed and no longer differs.
package main
