// Package vm tests podd where its users run it: in a Debian 12 with systemd as
// PID 1, cgroup v2 and the systemd cgroup driver, booted by qemu under software
// emulation, so that it works on every machine.
//
// `make test-vm` runs it. image.sh builds the machine once; what is tested goes
// onto a second disk (the payload), so that a changed podd changes nothing of
// the machine. guest/run.sh runs inside and writes one line a check to the first
// serial port, where this package reads it; the console is the second. Its checks
// of cgroups, memory, AppArmor and user namespaces are in guest/limits.sh, those
// of the order of a pod's life and of what a restart or reboot does to it in
// guest/life.sh.
package vm
