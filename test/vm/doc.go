// Package vm tests podd where its users run it: in a Debian 12 with systemd as
// PID 1, booted by qemu under software emulation, so that it works on every
// machine. TestVMLimits and TestVMLife are cgroup v2 with the systemd cgroup driver: what
// the kernel holds pods to, and what happens to them in their life. TestVMCgroupV1 is the
// same disk with cgroup v1 and both drivers, the one driver after the other. The three run
// side by side, each on one emulated processor at a time.
//
// `make test-vm` runs it. image.sh builds the machine once; what is tested goes
// onto a second disk (the payload), so that a changed podd changes nothing of the
// machine. machine_test.go boots it, and gives it up where it stands still.
//
// guest/run.sh runs inside and writes one line a check to the first serial port,
// where this package reads it; the console is the second. Its checks of cgroups,
// memory, AppArmor and user namespaces are in guest/limits.sh, those of huge pages
// in guest/hugepages.sh, those of the order of a pod's life and of what a restart or
// reboot does to it in guest/life.sh, those of a clock that is set in guest/clock.sh,
// those of volumes that need an NFS server or project quotas in guest/volumes.sh, those
// of a shutdown of the machine in guest/shutdown.sh, those of the Debian package in
// guest/packages.sh, those of a database that is rebooted in guest/database.sh, and the few that cgroup v1 needs beside in guest/v1.sh.
package vm
