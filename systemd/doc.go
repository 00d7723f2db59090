// Package systemd tells systemd how podd is (sd_notify, the watchdog) and keeps
// podd's two unit files.
//
// podd-runtime.service is the container runtime, podd.service the agent. The
// agent wants the runtime and starts after it, and neither stops nor restarts
// the other: pods outlive both. Whether podd is well is for the caller to say;
// this package only carries the word. Without systemd every call is a no-op.
package systemd
