// Package systemd notifies systemd of podd's state (sd_notify, the watchdog), writes podd's log
// to the journal with fields, and contains podd's two unit files.
//
// podd-runtime.service is the container runtime, podd.service the agent. The agent wants the
// runtime and starts after it. Neither stops or restarts the other: pods outlive both. The
// caller decides whether podd is healthy. Without systemd every call is a no-op.
package systemd
