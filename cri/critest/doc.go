// Package critest is a container runtime in memory that speaks CRI v1 on a real
// unix socket, for tests of everything that talks to a runtime.
//
// It behaves like a runtime: it tracks sandboxes, containers, images and name reservations,
// rejects the calls that containerd rejects, with its messages and codes, gives out
// addresses, runs "processes" that the test scripts, writes their logs and termination
// messages, and emits GetContainerEvents. It also misbehaves on request: slow, hanging,
// failing at the nth call, answering too late, losing events, dropping the stream,
// restarting.
//
// Package state decides what is allowed and what follows from it; the agent's tests use it
// without a socket. This package puts it into CRI's terms.
//
//	srv := critest.New(t)
//	srv.AddImage("localhost/app:1")
//	srv.Script("app", critest.Script{IgnoreTERM: true})
//	srv.FailNth("RunPodSandbox", 1, codes.Unknown, "no space left on device")
//	… give srv.Endpoint() to the code under test …
//	srv.Exit("app", 1)
//
// A Server listens on a socket, so do not use it in a synctest bubble. All methods may be
// called from any goroutine.
package critest
