// Package csi has the volumes that CSI node plugins make: it registers the drivers
// whose sockets appear, as the kubelet does (pluginregistration/v1), and calls them
// (CSI's Node service).
//
// It leaves to others: which volumes a pod has and when (package volumes), what is
// mounted into containers, and CSI's Controller service: nothing is provisioned,
// attached or deleted.
//
//	<root-dir>/plugins_registry/*.sock                                the registrars' sockets
//	<root-dir>/plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/
//	    vol_data.json                                                 of a staged volume
//	    globalmount                                                   where its driver staged it
//	<root-dir>/pods/<uid>/volumes/kubernetes.io~csi/<name>/
//	    vol_data.json                                                 of a published volume
//	    mount                                                         where its driver published it
//
// # Promises
//
//   - The record of a volume is written before its driver is asked for it, and goes
//     after the driver has given it back: whatever podd was killed in, TearDown and
//     Run finish it. The users of a staged volume are the pods' records; the last one
//     unstages it.
//   - Nothing that a driver made is deleted: podd removes empty directories and its
//     own records. What a driver leaves is in the way, and told.
//   - A call is bounded (2 minutes, the kubelet's). A driver that is away or hangs
//     holds up its own volumes alone; when it registers, who waits for it is told at
//     once. Nothing polls: the directory is watched.
//   - A driver is known by the name that its registrar and itself agree on. One that
//     does not keep to that is refused, and pods that want that name hear why.
//   - The values of Secrets go to the driver and nowhere else: what a driver says
//     about a failed call is shown without them.
//
// All methods are safe for concurrent use. Calls for one volume (a driver's handle)
// wait for one another.
package csi
