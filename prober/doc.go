// Package prober runs the startup, readiness and liveness probes of running
// containers, by exec, httpGet, tcpSocket and grpc.
//
// It owns when a probe runs, what a run means (thresholds) and the last results. Others
// act on a result: agent/plan restarts, status sets Ready. The reference is upstream's
// pkg/kubelet/prober and pkg/probe.
//
// # When a probe runs
//
//	container starts   initialDelay        then each period
//	      |------------------|------|------------|------------|
//	                       first  second
//	                              (1 s after the container's start, if the first failed)
//
// Startup and readiness probes first run when initialDelaySeconds are over; without a
// delay, at once. A failure in a container's first second is not an event: no process
// responds in its first milliseconds. The probe runs again at the end of that second.
// Upstream's kubelet begins at that time, since it sees a container up to a second late.
// Failures before the first success count by the periods gone by when they came, so that
// failureThreshold × periodSeconds is the time that a container has to start up, as the
// API promises.
//
// A liveness probe first runs when initialDelaySeconds are over, and not before
// one period: upstream's worker ticks from the time at which the pod was
// accepted, and a podd that probed sooner would kill slow starters that the kubelet
// does not.
//
// A startup probe holds the other two back until it succeeds. After a liveness
// failure, and after a startup probe's success or failure, that probe rests until
// the container has a new ID. While a pod terminates only readiness probes run.
//
// Containers that ran before podd started are spread over one period, evenly by
// a golden ratio sequence, so that a restart of podd is no burst of probes. Their
// last results, saved in files, are valid until new ones contradict them
// (kubernetes/kubernetes#100277).
//
// # Promises
//
//   - A probe has at most one run in progress, which ends with its timeoutSeconds,
//     body and retries included. No run waits for another, except that exec probes
//     wait for a slot to start in (see gate).
//   - At most 10 KiB of a body or of a command's output are kept, 64 KiB of
//     headers.
//   - Sync, Results, Forget and Retain may be called by any goroutine at any time; they do
//     not block and do no I/O.
//   - Each change of a result wakes its pod once.
//   - A container with a new ID starts without results. (Upstream carries the count
//     of consecutive results over to the next container, so that one failure may
//     kill it.)
package prober
