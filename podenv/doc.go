// Package podenv computes the inputs of a pod's sandbox and containers beyond the Pod
// itself, once for each sandbox and each start of a container. It returns them as values
// (pod.SandboxInputs, pod.ContainerInputs), which the worker passes both to volumes and
// to cri.
//
//	facts of the node ─┐
//	a pod's addresses ─┼─► Resolver ─► variables, subPaths, hosts file, DNS, …
//	Objects, volumes ──┘
//
// A new source of variables, or a new fact of the node that containers see, is a case
// here, and affects no other package.
//
//	env.go        variables              envfile.go   those out of files in volumes
//	objects.go    those out of ConfigMaps and Secrets
//	downward.go   what volumes say of the pod
//	subpath.go    subPathExpr            hosts.go     the hosts file and the host name
//	dns.go        the pod's resolver configuration, of the node's (resolvconf.go)
//
// Promises: nothing is kept between two calls and nothing is written. A Resolver reads
// only small files of the node, and of the pod's volumes for fileKeyRef. Any number of
// goroutines may use it.
package podenv
