// Package devices gives containers the devices of the node's device plugins, as the
// kubelet's device manager does (KEP-3573; deviceplugin/v1beta1). Plugins register, list
// their devices and their health, and say what a container needs in order to use its
// devices.
//
// It leaves to others: when a pod is admitted (package admission asks Admit), when a
// container is started (the agent asks Container), and what the runtime is told (cri/spec).
// It passes on how close devices are to the machine's NUMA nodes, and decides nothing by
// that: there is no topology manager.
//
//	<root-dir>/device-plugins/kubelet.sock   where plugins register
//	<root-dir>/device-plugins/*              the sockets of plugins, removed at the start, after
//	                                         which plugins register again
//	<root-dir>/devices.json                  who has which devices, for a podd that is restarted
//
// Plugins that register in plugins_registry come from package registry, which watches it.
//
// # A device's way
//
//	registered ─► listed, healthy ─► reserved (Admit) ─► allocated (the plugin's Allocate) ─► free (Release)
//	                 │  ▲ another list
//	                 ▼  │
//	              unhealthy ◄── the last plugin's stream has ended; five minutes later the resource is gone
//
// Several plugins may register for one resource, as during an update. The newest one that has
// listed its devices serves the resource. The others stand by.
//
// # Promises
//
//   - No method but Container calls a plugin, or blocks. Admit reserves devices at once and
//     under the lock, in the order in which it is called. The calls to plugins run in
//     goroutines of Run, each with a deadline and without the lock: a plugin that does not
//     respond delays only the pods that want its devices.
//   - A pod keeps its devices until Release, whatever happens to the plugin and to podd:
//     the checkpoint is written before the pod is admitted.
//   - Nothing polls. Whoever waits is woken: the pod, admission, the Node's status.
//   - What plugins send is bounded in size and number, and checked.
//
// All methods are safe for concurrent use.
package devices
