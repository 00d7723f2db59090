// Package inspect compares what a container runtime was given for a container with the
// manifest. It shows each item in the manifest's words and in those of the OCI
// specification, and whether the two differ.
//
// It is pure: node queries the runtime, the socket serves the result (Pod), podd
// inspect prints it.
//
//	report.go     Pod, Container, Row: the result    compare.go   Compare
//	process.go    command, user, privileges          isolation.go namespaces, seccomp, devices, paths
//	limits.go     cgroup and resources               mounts.go    mounts
//	variables.go  environment                        mask.go       masking
//
// Promise: no value of a Secret is in a result. Environment variables are masked
// unless the manifest itself has their literal value; in command lines and mounts,
// texts with expanded variables are masked unless all of those have. That holds for
// Container.Spec, too.
package inspect
