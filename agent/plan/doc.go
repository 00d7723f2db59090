// Package plan decides what happens to a pod next. It is pure: everything it
// needs is in Input, everything it wants done is in Step, and the same input
// gives the same step. All of Kubernetes' rules for the life of a pod on a
// node are here and nowhere else.
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
// What a wanted pod needs is asked in this order; the first that has an answer
// makes the step, and the next sync goes on from there:
//
//	has it completed, or did the node end it,
//	now or before?                                     end.go, deadline.go
//	is another content of its objects to restart it?   change.go
//	does a container's end restart all of them?        reset.go
//	does something run that must not, or not so?       containers.go, probes.go
//	is there a sandbox to run in?                      sandbox.go
//	which init container or sidecar is next?           init.go, sidecars.go
//	which regular container is due (again)?            containers.go, restart.go
//	what is dead and superseded?                       collect.go
//
// Beside Next there are the rules that come into play elsewhere: what another content
// of its ConfigMaps and Secrets means to a pod (objects.go); whether a wanted pod is
// taken up, and which first (admit.go); what is asked of its end, and whether
// that takes too long (ending.go); how a container's grace period runs down
// (countdown.go); which containers are probed (probes.go); whether a memory limit may
// be lowered (resize.go).
//
// Upstream's measure is the kubelet's computePodActions with what surrounds it.
// Where podd goes another way, the comment at that place says so and why.
package plan
