// Package spec converts a Pod, and what it rests on (pod.SandboxRequest,
// pod.ContainerRequest), into CRI's configuration of a sandbox and of a
// container, as the kubelet makes it.
//
//	options.go    the node's facts and settings that end in a configuration
//	sandbox.go    Sandbox       container.go  Container
//	resources.go  Resources: CPU, memory, huge pages, swap, OOM scores
//	security.go   users, capabilities, seccomp, AppArmor, namespaces
//	labels.go     labels and annotations, whose keys cri reads back
//
// It consists of functions of values: it makes no call, writes nothing and keeps
// nothing. Only Options.WithDefaults asks the kernel, once.
package spec
