// Command parity runs the same pods on podd and on upstream's kubelet, each
// with a containerd of its own of the same configuration, and compares what a
// user of either sees. `make parity` builds both and runs it; README.md says how
// a scenario is written.
//
// # What is compared
//
// Whether the script came through: on both sides, or the scenario has failed. An
// error that both have proves nothing.
//
// Three things then, each a column of the table.
//
// Statuses. The poller reads /pods of both agents every 50 ms. Of each pod it
// keeps one sequence an axis: the phase with its reason, each condition's status
// and reason, and for each container its state with reason and exit code, its
// ready and its started. Each state begins with the number of restarts until
// then. Axes are compared one by one, because two agents never take all steps in
// the same order across containers. The last status is compared whole and
// exactly, messages included.
//
// Events. For each pod and container: which there are by type and reason, what
// each says, in which order they came first, and for Created, Started and Killing
// how often, unless the script ends in the middle of things. How often others were
// told hangs on the moment of looking. An event
// of both sides that says something else is one difference; it has its place in
// the order all the same.
//
// Traces. What the containers themselves wrote to /out/trace, line by line: the
// order in which they were started and stopped across a pod, what the kernel told
// them of their identity and limits, and what probes and hooks sent them.
//
// Times, IDs, addresses, ports and the places of the two nodes are set aside, and
// so is what gRPC puts before a runtime's error ("rpc error: code = Unknown desc =
// "), which the kubelet shows in some messages, and the order of a resolver's
// options, which the kubelet takes from a map.
//
// # With an apiserver
//
// Scenarios whose names begin with api- have one on the kubelet's side. What differs
// by nature is kept from coming up rather than set aside afterwards: a pod is created
// under the name that a static pod would have, bound to the node, and without a
// service account (the admission plugin is off). Its status is read from the kubelet's
// /pods, where it has been to the apiserver and back; its events are those that the
// kubelet logs, as without one. Set aside are observedGeneration, which says to which
// version of an API object a status belongs; the memory limit that cgroup v1 has where
// there is none, which the kubelet shows as the pod's if it looks in time; and its
// complaint, in the moment in which a pod ends, that an object is not registered.
//
// # The rule for sequences
//
// The kubelet looks once a second, and later when many pods start at once, and
// shows what it saw: a state that lasted less may never be shown, another is shown
// late and for longer than it was; podd shows what happens when it happens. So:
//
//   - What was shown for blink (2.5 s) or longer by podd, for three times as long by
//     the kubelet, or stands at the end, is in both sequences, in the same order.
//   - What was shown for less may be missing on the other side if it is a state
//     that pods pass through (see passing): never an end of the pod, never a
//     reason that upstream has not.
//   - A state that comes again is entered as often on both sides, however short it
//     was. Flapping counts transitions, not time; what comes again after a restart
//     is another state, since the restarts are part of it.
//   - An end with the back-off after it lasts roughly as long on both sides.
//   - An agent that is started again lists its pods before it has decided on them,
//     sometimes for less than the poller takes from one look to the next. The first
//     state after a start may be missing on the other side if podd showed it at one
//     look, or the kubelet for less than a glimpse (0.5 s), if pods pass through it,
//     and if the next state is what the other side shows first after its own start.
//
// One pair of states counts as one: that a container has ended, and that it is in
// back-off after that end. The kubelet shows the first until it looks at the pod
// again, ten seconds and more later, podd the second at once. Which of the two is
// shown in the end is compared all the same.
//
// Nothing is seen of a pod whose manifest is gone: the kubelet stops listing it
// at once. What happens then is compared by events and traces. Of an agent that
// has just been started nothing is taken before it has looked at the pod, unless
// the script ends so.
//
// Nothing is played twice. A difference that comes and goes is one of podd's, or
// the scenario's, or the comparer's, and is mended there.
//
// # Known differences
//
// differences.yaml lists what differs on purpose: the scenario, the field, what
// either side has there, and the reason that a user is given. What differs and is
// not listed fails the run, and so does an entry that did not occur in each of its
// scenarios on both sides as it says.
package main
