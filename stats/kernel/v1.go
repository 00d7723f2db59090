package kernel

import (
	"bytes"
	"time"
)

// userHertz is the unit of cpuacct.stat and of /proc, ticks a second; the kernel's
// interface has 100 on every architecture that Go supports.
const userHertz = 100

const tick = uint64(time.Second / userHertz)

// v1 reads a cgroup from a hierarchy per controller, and takes those that lack it out of
// at. It reads all of one directory before the next, memory first, where find has looked.
func (r *Reader) v1(in *reads, at *cgroupDirs, detail Detail, s *Sample) {
	all := detail == All
	if in.dir = at.memory; in.dir != "" {
		s.Memory = &Memory{}
		if !in.memoryV1(s.Memory) {
			s.Memory, at.memory = nil, ""
		} else if all {
			in.memoryDetailsV1(s.Memory)
		}
	}
	if in.dir = at.cpuacct; in.dir != "" {
		if usage := in.text("cpuacct.usage"); usage != nil {
			s.CPU = &CPU{Usage: parseNumber(usage)}
			if all {
				in.timesV1(s.CPU)
			}
		} else {
			at.cpuacct = ""
		}
	}
	if !all {
		at.cpu, at.blkio = "", "" // not read
	}
	if in.dir = at.cpu; in.dir != "" && (s.CPU == nil || !in.schedulerV1(s.CPU)) {
		at.cpu = ""
	}
	if in.dir = at.pids; in.dir != "" {
		if members := in.text("cgroup.procs"); members != nil {
			processes(members, s)
			if all {
				r.countOpenFiles(in.file, members, s)
				s.Threads = in.number("pids.current")
				s.ThreadsMax = limit(in.setting("pids.max"))
			}
		} else {
			at.pids = ""
		}
	}
	if in.dir = at.blkio; in.dir != "" && !in.devicesV1(s) {
		at.blkio = ""
	}
}

func (r *reads) timesV1(c *CPU) {
	r.numbers("cpuacct.stat", func(name []byte, n uint64) {
		switch string(name) {
		case "user":
			c.User = n * tick
		case "system":
			c.System = n * tick
		}
	})
}

// limit returns 0 for none, as cAdvisor shows it.
func limit(n uint64) uint64 {
	if n >= Unlimited {
		return 0
	}
	return n
}

// memoryV1 reports whether the cgroup is in this hierarchy, as the next ones do.
func (r *reads) memoryV1(m *Memory) bool {
	m.Usage = r.number("memory.usage_in_bytes")
	m.Limit = r.setting("memory.limit_in_bytes")
	m.SwapLimit, m.MemorySwapLimit = Unlimited, Unlimited
	if m.Limit < Unlimited { // the kernel has no limit of both below that of memory
		if both := r.setting("memory.memsw.limit_in_bytes"); both > 0 { // no such file: swap is not accounted
			m.MemorySwapLimit = both
			if both < Unlimited {
				m.SwapLimit = both - min(both, m.Limit)
			}
		}
	}
	there := r.numbers("memory.stat", func(name []byte, n uint64) {
		switch string(name) {
		case "pgfault":
			m.OwnFaults = n
		case "pgmajfault":
			m.OwnMajorFaults = n
		case "total_pgfault":
			m.Faults = n
		case "total_pgmajfault":
			m.MajorFaults = n
		case "total_cache":
			m.Cache = n
		case "total_rss":
			m.RSS = n
		case "total_mapped_file":
			m.MappedFile = n
		case "total_swap":
			m.Swap = n
		case "total_active_file":
			m.ActiveFile = n
		case "total_inactive_file":
			m.InactiveFile = n
		}
	})
	m.WorkingSet = m.Usage - min(m.Usage, m.InactiveFile)
	return there
}

func (r *reads) memoryDetailsV1(m *Memory) {
	m.MaxUsage = r.number("memory.max_usage_in_bytes")
	m.Failcnt = r.number("memory.failcnt")
	m.Kernel = r.number("memory.kmem.usage_in_bytes")
	m.Reservation = r.setting("memory.soft_limit_in_bytes")
	r.numbers("memory.oom_control", func(name []byte, n uint64) {
		if string(name) == "oom_kill" {
			m.OOMKills = n
		}
	})
}

// schedulerV1 reads the periods of a quota only where there is one.
func (r *reads) schedulerV1(c *CPU) bool {
	quota := r.recordErr(r.get("cpu.cfs_quota_us", true)) // -1 for none
	there := quota != nil
	c.Quota = parseNumber(quota)
	shares := r.settingText("cpu.shares")
	there = there || shares != nil
	c.Shares = parseNumber(shares)
	c.Period = r.setting("cpu.cfs_period_us")
	if c.Quota == 0 {
		return there
	}
	return r.numbers("cpu.stat", func(name []byte, n uint64) {
		switch string(name) {
		case "nr_periods":
			c.Periods = n
		case "nr_throttled":
			c.ThrottledPeriods = n
		case "throttled_time":
			c.ThrottledTime = n
		case "nr_bursts":
			c.Bursts = n
		case "burst_time":
			c.BurstTime = n
		}
	}) || there
}

// devicesV1 reads what the throttling layer counts, which sees every request whatever
// scheduler the device has.
func (r *reads) devicesV1(s *Sample) bool {
	each := func(text []byte, read, write func(*Device, uint64)) {
		for line := range bytes.Lines(text) {
			name, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '}) // major:minor Read 17
			kind, value, ok := bytes.Cut(rest, []byte{' '})
			if !ok {
				continue
			}
			set := read
			if string(kind) == "Write" {
				set = write
			} else if string(kind) != "Read" {
				continue
			}
			if d := s.device(name); d != nil {
				set(d, parseNumber(value))
			}
		}
	}
	bytesText := r.text("blkio.throttle.io_service_bytes_recursive")
	each(bytesText, func(d *Device, n uint64) { d.ReadBytes = n }, func(d *Device, n uint64) { d.WrittenBytes = n })
	there := bytesText != nil
	if there && len(s.Devices) == 0 {
		return there // both files have the same devices
	}
	each(r.text("blkio.throttle.io_serviced_recursive"),
		func(d *Device, n uint64) { d.Reads = n }, func(d *Device, n uint64) { d.Writes = n })
	s.sortDevices()
	return there
}
