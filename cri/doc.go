// Package cri speaks to the container runtime over the Container Runtime
// Interface, version 1, on any unix endpoint.
//
// It owns the connection (Dial, Client), the conversion of a Pod into CRI's
// sandbox and container configuration, as the kubelet makes it, the conversion
// of what the runtime answers into pod.Observed and pod.Glance, and the mapping
// of the runtime's errors to podd's own (one function, mapError). It decides
// nothing about a pod's life: agent/plan does.
//
//	sandbox_run.go       RunSandbox, StopSandbox, RemoveSandbox
//	container_create.go  CreateContainer, StartContainer
//	container_stop.go    StopContainer, RemoveContainer
//	container_update.go  UpdateContainer, ReopenContainerLog
//	exec.go              ExecSync
//	observe.go           Observe: one pod, whole     glance.go  Glance: all pods, cheap
//	events.go            Events: the runtime's stream, as hints
//	image_calls.go       ImageStatus, PullImage, ListImages, RemoveImage, ImageFsInfo
//	env.go dns.go hosts.go resources.go security.go labels.go   pure conversion
//
// Promises:
//
//   - A Client may be used by any number of goroutines. No lock is held over a
//     call to the runtime.
//   - Every call has a deadline (Options.RequestTimeout, or a longer one of its
//     own), except PullImage, Events, and ExecSync without a timeout, which the
//     caller ends.
//   - A create is never abandoned: RunSandbox and CreateContainer return only
//     when the runtime has answered, or when its deadline has passed and the
//     runtime was asked whether the thing exists after all. So an Observe that
//     follows sees everything that was made.
//   - When the runtime goes away, calls fail at once with pod.ErrUnavailable; when
//     it is back, they work again within half a second. Nothing has to be
//     dialled anew.
//   - Only pods whose sandboxes (or, where none is left, containers) carry
//     pod.AnnotationStartTime are podd's; Glance shows no others.
package cri
