// Package inspect puts what a container runtime was given for a container beside
// what the manifest asked for: each thing in the manifest's words and in those of
// the OCI specification, and whether the two differ.
//
// It is pure: node asks the runtime, the socket carries the answer (Pod), podd
// inspect prints it.
//
//	report.go     Pod, Container, Row: the answer    compare.go   Compare
//	process.go    command, user, privileges          isolation.go namespaces, seccomp, devices, paths
//	limits.go     cgroup and resources               mounts.go    mounts
//	variables.go  environment                        mask.go      what is not shown
//
// Promise: no value of a Secret is in an answer. Of the environment only what the
// manifest itself has literally is shown, of the command line and of mounts nothing
// that a variable was put into but such a one. That holds for Container.Spec, too.
package inspect
