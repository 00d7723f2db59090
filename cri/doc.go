// Package cri is the client of the container runtime: the Container Runtime
// Interface, version 1, on any unix endpoint.
//
// It owns the connection (Conn, Client), the calls, the conversion of the
// runtime's responses into pod.Observed and pod.Summary, and the mapping of its
// errors to podd's own (one function, mapError). Requests are built by spec, a
// package of pure functions.
//
// It decides nothing about a pod's lifecycle: agent/plan does. It depends only on the
// runtime: the inputs of a sandbox or a container beyond its pod come with the request,
// from podenv. It writes no file. Of pods' files (podfs), it reads only the logs and
// termination messages of dead containers.
//
//	sandbox_run.go       RunSandbox, StopSandbox, RemoveSandbox
//	container_create.go  CreateContainer, StartContainer
//	container_stop.go    StopContainer, RemoveContainer
//	container_update.go  UpdateContainer, ReopenContainerLog
//	exec.go              ExecSync, and where sessions are served
//	observe.go           Observe: one pod, complete  summary.go  Summaries: all pods, cheap
//	memo.go              what an observation caches of a pod
//	inspect.go           Inspect: one container, in the runtime's own words
//	events.go            Events: the runtime's stream, as hints
//	image_calls.go       ImageStatus, PullImage, ListImages, RemoveImage, ImageFsInfo
//	node_calls.go        Version, Status, RuntimeConfig
//
// Promises:
//
//   - A Client may be used by any number of goroutines. No lock is held over a
//     call to the runtime.
//   - Every call has a deadline (the timeout of Connect, or a longer one of its
//     own), except PullImage, Events, and ExecSync without a timeout, which the
//     caller ends.
//   - A create is never abandoned: RunSandbox and CreateContainer return only
//     when the runtime has responded, or when the deadline has passed and podd has
//     queried the runtime whether the object exists after all. So a later
//     Observe sees everything that was created.
//   - When the runtime becomes unavailable, calls fail at once with
//     pod.ErrUnavailable; when it is back, they succeed again within half a second,
//     without dialling again.
//   - A pod is podd's if its sandboxes (or, if none is left, its containers) carry
//     pod.AnnotationStartTime. A kubelet's pod is podd's too if it has its directory in
//     podd's root directory. Summaries shows no others.
package cri
