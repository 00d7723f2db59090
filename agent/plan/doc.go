// Package plan decides what happens to a pod next. It is pure: everything it needs is
// in Input, everything to do is in Step, and the same input gives the same step. All
// of Kubernetes' rules for the life of a pod on a node are here and nowhere else.
//
// A worker (package agent) calls Next after each observation of its pod, performs
// the step and observes again, until a step has nothing to do. Because decisions
// depend on what the runtime reports and not on what was done before, starting
// after a crash of podd takes the same path as any start.
//
// A step holds actions that belong to one moment: what has to end comes before
// what starts, and nothing starts in a step in which something of the same pod
// still has to end. That order is what keeps a pod from running twice at once.
//
// What a desired pod needs is determined in this order; the first question with an
// answer makes the step, and the next sync continues from there:
//
//	has it completed, or did the node end it,
//	now or before?                                     terminate.go, active_deadline.go
//	is another content of its objects to restart it?   object_change.go
//	does a container's end restart all of them?        restart_all.go
//	does something run that must not, or not so?       containers.go, probes.go
//	is there a sandbox to run in?                      sandbox.go
//	which init container or sidecar is next?           init_containers.go, sidecars.go
//	which regular container is due (again)?            containers.go, restart.go
//	what is dead and superseded?                       collect.go
//
// Beside Next there are the rules that apply elsewhere: what a change of its
// ConfigMaps and Secrets means to a pod (objects.go); whether a desired pod is
// admitted, and which first (admit.go); what was requested of its termination, and
// whether that takes too long (termination.go); how a container's grace period runs down
// (countdown.go); which containers are probed (probes.go); whether a memory limit may
// be lowered (resize.go).
//
// Its model is the kubelet's computePodActions with what surrounds it. Where podd
// deviates, the comment there says so and why.
package plan
