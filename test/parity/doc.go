// Command parity runs the same pods on podd and on upstream's kubelet, each
// with a containerd of its own of the same configuration, and compares what a
// user of either sees. `make parity` builds both and runs it; README.md says how
// a scenario is written.
//
// # What is compared
//
// Whether the script completed: on both sides, or the scenario has failed. An error
// on both sides proves nothing.
//
// Three things then, each a column of the table.
//
// Statuses. The poller reads /pods of both agents every 50 ms. For each pod it keeps
// one sequence per axis: the phase with its reason, each condition's status and
// reason, and for each container its state with reason and exit code, its ready and
// its started. Each state has the number of restarts until then. Axes are compared
// separately, because two agents never take all steps in the same order across
// containers. The last status is compared whole and exactly, messages included.
//
// Events. For each pod and container: which there are by type and reason, their
// messages, the order of their first occurrences, of the pod's, of each container's and
// between the pod's and each container's, and for Created, Started and
// Killing the counts, unless the script ends in the middle of something. The counts
// of others depend on when the agents sync, and may not be far apart. An event of both sides with different
// messages is one difference; its place in the order is compared all the same.
//
// Traces. What the containers themselves wrote to /out/trace, line by line: the
// order in which they were started and stopped across a pod, what the kernel told
// them of their identity and limits, and what probes and hooks sent them.
//
// What a side shows that cannot be, whatever the other shows: an end before the start,
// an address outside the pods' network, two IDs of one image. An agent that runs and does
// not show its pods for twenty seconds ends the run.
//
// Times, IDs, addresses, ports and the paths of the two nodes are ignored, and so is
// what gRPC puts before a runtime's error ("rpc error: code = Unknown desc = "),
// which the kubelet shows in some messages, and the order of a resolver's options,
// which the kubelet takes from a map.
//
// # Names, and an apiserver
//
// podd runs under the kubelet's name, as clusters start it. What is about files and URLs it
// plays under its own name, too (podd run), under which it reads manifests strictly.
//
// In scenarios whose names begin with api- the kubelet and podd are nodes of one apiserver,
// and what is there is compared. What differs by nature is kept from coming up rather than
// set aside afterwards: a pod is created under the name that a static pod would have, bound
// to the node, and without a service account (the admission plugin is off). As podd run
// podd has the same documents as files. Set aside are observedGeneration, which says to which
// version of an API object a status belongs; the memory limit that cgroup v1 has where
// there is none, which the kubelet shows as the pod's if it looks in time; its
// complaint, in the moment in which a pod ends, that an object is not registered; and what it
// shows of the containers of a pod that it evicted, if it removed one before it read how it
// ended (ContainerStatusUnknown): phase, reason, message and events are compared all the same.
//
// # The rule for sequences
//
// The kubelet observes pods once a second, and less often when many pods start at
// once: a shorter state may never be shown, another is shown late and for longer than
// it lasted; podd shows what happens when it happens. So:
//
//   - What was shown for blink (2.5 s) or longer by podd, for three times as long by
//     the kubelet, or at the end, is in both sequences, in the same order.
//   - What was shown for less may be missing on the other side if it is a
//     transitional state (see passing): never an end of the pod, never a reason that
//     upstream does not have. What every start takes (Pending, ContainerCreating,
//     PodInitializing) podd must show if the kubelet does for a blink, and else in three
//     of four places of a whole run.
//   - A recurring state is entered as often on both sides, however short it was.
//     Flapping counts transitions, not time; what recurs after a restart is another
//     state, since the restarts are part of it. Not counted is what the kubelet shows
//     of the last life, for less than blink, after it has counted the next: ready.
//   - An end with the back-off after it lasts as long on both sides, but that the
//     kubelet, which looks late, may take twice as long. So does that something is ready,
//     or not, the start left out: a container's until it runs.
//   - An agent that is restarted lists its pods before it has decided about them,
//     sometimes for less than the interval of the poller. The first state after a
//     start may be missing on the other side if podd showed it in one poll, or the
//     kubelet for less than a glimpse (0.5 s), if it is a transitional state, and if
//     the next state is what the other side shows first after its own start.
//
// One pair of states counts as one: that a container has ended, and that it is in
// back-off after that end. The kubelet shows the first until it syncs the pod again,
// ten seconds and more later, podd the second at once. Which of the two is shown at
// the end is compared all the same.
//
// Nothing is observed of a pod whose manifest was removed: the kubelet stops listing
// it at once. What happens then is compared by events and traces. Of an agent that
// has just been started nothing is recorded before it has synced the pod, unless the
// script ends before that.
//
// Nothing is retried. A flaky difference is a bug of podd, of the scenario, or of the
// comparer, and is fixed there.
//
// # Known differences
//
// differences.yaml lists intended differences: the scenario, the field, its value on
// either side, and the reason, for users. A difference that is not listed fails the
// run, and so does an entry that did not occur in each of its scenarios on both sides
// as it says.
package main
