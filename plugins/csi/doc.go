// Package csi sets up and tears down volumes through CSI node plugins: it calls the Node
// service of the drivers that register.
//
// It leaves to others: how plugins register (package registry), which volumes a pod has and
// when they are needed (package volumes), and what is mounted into containers. It does not
// call CSI's Controller service: nothing is provisioned, attached or deleted.
//
//	<root-dir>/plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/
//	    vol_data.json                                                 of a staged volume
//	    globalmount                                                   where its driver staged it
//	<root-dir>/pods/<uid>/volumes/kubernetes.io~csi/<name>/
//	    vol_data.json                                                 of a published volume
//	    mount                                                         where its driver published it
//
// # Promises
//
//   - The record of a volume is written before the first call for it and removed after
//     the driver has unpublished it: wherever podd was killed, TearDown and Run finish
//     the work. The pods with a record of a staged volume are its users; when the
//     last one goes, the volume is unstaged.
//   - podd deletes nothing that a driver created: it removes only empty directories and its
//     own records. If a driver leaves anything else behind, that is an error.
//   - Every call has a timeout (2 minutes, as in the kubelet). A driver that is
//     unavailable or hangs blocks its own volumes only; when it registers, the pods that
//     wait for it are woken at once.
//   - The registrar and the driver must agree on the driver's name. Otherwise the driver
//     is rejected, and pods that wait for that name report why.
//   - The values of Secrets are sent to the driver only, and masked in its error
//     messages.
//
// All methods are safe for concurrent use. Calls for one volume (a driver's handle) are
// serialized.
package csi
