// Command chaos is podd's fault test. On a node of its own (testnode: real
// containerd, runc and CNI, real containers) pods of many kinds come and go through
// the manifest directory while faults strike: podd, containerd, shims and containers
// are killed or frozen, sandboxes and containers are removed behind podd's back, the
// disk fills up, the power is cut. After each fault the invariants are checked, and
// every few faults, and at the end, it waits until the node matches the manifests.
// The invariants are podd's promises:
//
//   - no container runs that belongs to no pod, no desired pod is forgotten;
//   - no pod runs twice at once (each container holds a lock while it runs, and
//     reports it if somebody else does);
//   - nothing leaks: sandboxes, network namespaces, addresses, veths, mounts,
//     cgroups, packet filter rules, processes, directories;
//   - a pod that has run to its end does not run again;
//   - what lies in a hostPath is not touched, nor what somebody has mounted inside an
//     emptyDir behind podd's back, and an emptyDir begins empty;
//   - who reads a volume with values sees a whole version (test/e2e/whole), never an
//     older one than before, and when nothing strikes any more the newest; a volume
//     with a Secret is on no disk.
//
// Pods have volumes of every kind, and the objects that they name are edited, broken,
// removed and put back among the faults. With -storm only pods with Secrets come, many
// of them at a time, and the only fault is that podd is killed.
//
// With -apiserver the node is one of a cluster: pods that are bound to it come and go
// through a real apiserver beside those of manifests, with ConfigMaps and Secrets of the
// cluster, and the apiserver, its etcd, or both, are killed and frozen, or a proxy before it
// answers with 429, 500, half a body, silence or nothing. Then these are promises, too:
//
//   - podd deletes a pod from the apiserver only when its containers, sandboxes and
//     directory are gone, and every pod whose deletion was requested is deleted;
//   - once the apiserver is back, it shows each pod as it is, a mirror pod for each static
//     one that may have one, and no other.
//
// Pods and faults are determined by the seed alone, and each step's choices by seed
// and step, so that a failure is replayed up to its step; the timing depends on the
// machine, and a failure that is a race may take more than one replay.
//
// The clock is not among the faults: it is the machine's; the tests in virtual
// machines set theirs.
//
// The same program is the first process of the containers (chaos contain).
package main
