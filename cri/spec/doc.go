// Package spec converts a Pod and its inputs (pod.SandboxRequest, pod.ContainerRequest)
// into CRI's configuration of a sandbox and of a container, as the kubelet does.
//
//	options.go    the node's facts and settings that end in a configuration
//	sandbox.go    Sandbox       container.go  Container
//	resources.go  Resources: CPU, memory, huge pages, swap, OOM scores
//	security.go   users, capabilities, seccomp, AppArmor, namespaces
//	labels.go     labels and annotations; cri reads back their keys
//
// It consists of functions of values: it makes no call, writes nothing and stores nothing.
// Only Options.WithDefaults asks the kernel, once.
package spec
