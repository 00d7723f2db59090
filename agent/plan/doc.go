// Package plan decides what happens to a pod next. It is pure: everything it
// needs is in Input, everything it wants done is in Step, and the same input
// gives the same step. All of Kubernetes' rules for the life of a pod on a
// node are here and nowhere else.
//
// A worker (package agent) asks Next after each look at its pod, performs the
// step and looks again, until a step has nothing to do. Because the decision
// rests on what the runtime says and not on what was done before, starting
// after a crash of podd is the same path as starting at all.
//
// A step holds actions that belong to one moment: what has to end comes before
// what starts, and nothing starts in a step in which something of the same pod
// still has to end. That order is what keeps a pod from running twice at once.
//
// What a wanted pod needs is asked in this order; the first that has an answer
// makes the step, and the next look goes on from there:
//
//	has it run to its end, or did the node end it,
//	now or before?                                     end.go, deadline.go
//	does a container's end restart all of them?        reset.go
//	does something run that must not, or not so?       containers.go, probes.go
//	is there a sandbox to run in?                      sandbox.go
//	which init container or sidecar is next?           init.go, sidecars.go
//	which regular container is due (again)?            containers.go, restart.go
//	what is dead and superseded?                       collect.go
//
// Upstream's measure is the kubelet's computePodActions with what surrounds it.
// Where podd goes another way, the comment at that place says so and why.
package plan
