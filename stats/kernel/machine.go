package kernel

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what the machine has.
type Machine struct {
	// Cores are logical processors, PhysicalCores and Sockets what carries them; 0 if
	// unknown.
	Cores, PhysicalCores, Sockets int
	// Memory and Swap are bytes.
	Memory, Swap uint64
	// Kernel and OS are the kernel's release and the distribution's name.
	Kernel, OS string
	// MachineID, SystemUUID and BootID are as the Node shows them.
	MachineID, SystemUUID, BootID string
}

// Machine reads what the machine has.
func (r *Reader) Machine() Machine {
	f := files.Get().(*file)
	defer files.Put(f)
	in := &reads{file: f, dir: r.cfg.Proc}
	defer in.close()
	var m Machine
	memory := in.meminfo()
	m.Memory, m.Swap = memory.total, memory.swapTotal
	m.Cores, m.PhysicalCores, m.Sockets = cores(in.text("cpuinfo"))
	m.Kernel = strings.TrimSpace(string(in.text("sys/kernel/osrelease")))
	m.BootID = strings.TrimSpace(string(in.text("sys/kernel/random/boot_id")))
	in.dir = r.cfg.Sys
	m.SystemUUID = strings.TrimSpace(string(in.text("class/dmi/id/product_uuid")))
	in.dir = "/etc"
	m.MachineID = strings.TrimSpace(string(in.text("machine-id")))
	for line := range strings.Lines(string(in.text("os-release"))) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			m.OS = strings.Trim(strings.TrimSpace(name), `"'`)
		}
	}
	return m
}

// cores counts processors, cores and sockets in /proc/cpuinfo. Architectures other than
// x86 do not name cores: each processor is then one, of one socket.
func cores(cpuinfo []byte) (logical, physical, sockets int) {
	type core struct{ socket, core string }
	all, packages := map[core]bool{}, map[string]bool{}
	var at core
	for line := range bytes.Lines(cpuinfo) {
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "processor":
			logical++
		case "physical id":
			at.socket = value
			packages[value] = true
		case "core id":
			at.core = value
			all[at] = true
		}
	}
	if len(all) == 0 {
		return logical, logical, min(logical, 1)
	}
	return logical, len(all), len(packages)
}

// meminfo has the machine's memory in bytes. hugePages are what is set aside for huge pages
// of all sizes, in use or not.
type meminfo struct{ total, swapTotal, swapFree, hugePages uint64 }

func (r *reads) meminfo() (m meminfo) {
	for line := range bytes.Lines(r.text("meminfo")) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		n := parseNumber(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))) << 10
		switch string(name) {
		case "MemTotal":
			m.total = n
		case "SwapTotal":
			m.swapTotal = n
		case "SwapFree":
			m.swapFree = n
		case "Hugetlb":
			m.hugePages = n
		}
	}
	return m
}

// machineMemory adds to a sample of the root what only /proc has: the machine's memory and
// swap as limits, as cAdvisor does, and its pressure.
func (r *Reader) machineMemory(in *reads, s *Sample) {
	in.dir = r.cfg.Proc
	if m := s.Memory; m != nil {
		info := in.meminfo()
		m.Limit, m.SwapLimit, m.MemorySwapLimit, m.HugePages = info.total, info.swapTotal, info.swapTotal, info.hugePages
		if r.cfg.V2 {
			m.Swap = info.swapTotal - min(info.swapTotal, info.swapFree)
		}
	}
	s.CPUPressure = in.pressure("pressure/cpu")
	s.MemoryPressure = in.pressure("pressure/memory")
	s.IOPressure = in.pressure("pressure/io")
}

// Tasks returns how many tasks (processes and threads) there are, and at most may be; -1
// if unknown.
func (r *Reader) Tasks() (running, most int64) {
	f := files.Get().(*file)
	defer files.Put(f)
	in := &reads{file: f, dir: r.cfg.Proc}
	defer in.close()
	running, most = -1, -1
	// 1.36 3.49 4.53 2/3518 3715089: runnable and all tasks. sysinfo(2) cannot tell more
	// than 65535 (kubernetes/kubernetes#107107).
	if fields := bytes.Fields(in.text("loadavg")); len(fields) >= 4 {
		if _, all, ok := bytes.Cut(fields[3], []byte{'/'}); ok {
			running = int64(parseNumber(all))
		}
	}
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		if n := int64(in.number(name)); n > 0 && (most < 0 || n < most) {
			most = n
		}
	}
	return running, most
}

// Network returns the interfaces of the network namespace of a process, in the kernel's
// order. It leaves out loopback, and also what cAdvisor leaves out: veth ends and docker's
// and nerdctl's bridges.
func (r *Reader) Network(pid int) ([]Interface, error) {
	f := files.Get().(*file)
	defer files.Put(f)
	text, err := f.read(r.cfg.Proc+"/"+strconv.Itoa(pid), "net/dev")
	if errors.Is(err, errMissing) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	var all []Interface
	for line := range bytes.Lines(text) {
		name, counts, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue // the two lines of headings
		}
		i := Interface{Name: string(bytes.TrimSpace(name))}
		if ignored(i.Name) {
			continue
		}
		n, column := [16]uint64{}, 0
		for field := range bytes.FieldsSeq(counts) {
			if column < len(n) {
				n[column] = parseNumber(field)
			}
			column++
		}
		i.RxBytes, i.RxPackets, i.RxErrors, i.RxDropped = n[0], n[1], n[2], n[3]
		i.TxBytes, i.TxPackets, i.TxErrors, i.TxDropped = n[8], n[9], n[10], n[11]
		all = append(all, i)
	}
	return all, nil
}

func ignored(name string) bool {
	for _, prefix := range []string{"lo", "veth", "docker", "nerdctl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// NetworkOf names the network namespace of a process: two that share one have the same
// name. It is "" for a process that is gone.
func (r *Reader) NetworkOf(pid int) string {
	name, _ := os.Readlink(r.cfg.Proc + "/" + strconv.Itoa(pid) + "/ns/net")
	return name
}

// DefaultInterface returns the interface of the IPv4 default route of this process's
// network namespace, or "".
func (r *Reader) DefaultInterface() string {
	f := files.Get().(*file)
	defer files.Put(f)
	text, err := f.read(r.cfg.Proc+"/self", "net/route")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		// Iface Destination Gateway Flags RefCnt Use Metric Mask …
		if fields := bytes.Fields(line); len(fields) >= 8 && string(fields[1]) == "00000000" && string(fields[7]) == "00000000" {
			return string(fields[0])
		}
	}
	return ""
}

// DeviceName returns the path of a block device, or "major:minor" for one that the kernel
// does not name.
func (r *Reader) DeviceName(major, minor uint64) string {
	number := strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
	to, err := os.Readlink(filepath.Join(r.cfg.Sys, "dev/block", number))
	if err != nil {
		return number
	}
	return "/dev/" + filepath.Base(to)
}

// Process is what one process has used.
type Process struct {
	// Started is when it was; two processes with one PID differ in it.
	Started time.Time
	// CPU is in nanoseconds, RSS in bytes.
	CPU, RSS            uint64
	Faults, MajorFaults uint64
}

// Process reads a process without its children; ErrGone if it does not exist.
func (r *Reader) Process(pid int) (Process, error) {
	f := files.Get().(*file)
	defer files.Put(f)
	text, err := f.read(r.cfg.Proc+"/"+strconv.Itoa(pid), "stat")
	if errors.Is(err, errMissing) {
		return Process{}, ErrGone
	}
	if err != nil {
		return Process{}, err
	}
	// The name, in parentheses, may contain anything; proc_pid_stat(5) counts fields
	// from 1, the one after the name is the third.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return Process{}, ErrGone
	}
	n := func(field int) uint64 { return parseNumber(fields[field-3]) }
	return Process{
		Started: r.booted.Add(time.Duration(n(22) * tick)),
		CPU:     (n(14) + n(15)) * tick, RSS: n(24) * uint64(unix.Getpagesize()),
		Faults: n(10), MajorFaults: n(12),
	}, nil
}

// CgroupOf returns the path of a process's cgroup, or "" if it is gone, in the root, or (on
// v1) in cgroups of different names for CPU and memory.
func (r *Reader) CgroupOf(pid int) string {
	f := files.Get().(*file)
	defer files.Put(f)
	text, err := f.read(r.cfg.Proc+"/"+strconv.Itoa(pid), "cgroup")
	if err != nil {
		return ""
	}
	found := map[string]string{}
	for line := range bytes.Lines(text) { // 4:cpu,cpuacct:/system.slice; 0::/ on v2
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) == 3 {
			for name := range strings.SplitSeq(parts[1], ",") {
				found[name] = parts[2]
			}
		}
	}
	path := found[""]
	if !r.cfg.V2 {
		if path = found["memory"]; path != found["cpuacct"] {
			return ""
		}
	}
	if path == "/" {
		return ""
	}
	return path
}

// DeviceOf returns the device of the file system that a path is on: the path of a block
// device, or its number if the file system has no block device, such as a network file
// system.
func (r *Reader) DeviceOf(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return r.DeviceName(uint64(unix.Major(st.Dev)), uint64(unix.Minor(st.Dev)))
}

// Booted returns when the machine started, by the clock when the Reader was made, to the
// second.
func (r *Reader) Booted() time.Time { return r.booted.Round(time.Second) }
