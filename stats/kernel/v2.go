package kernel

import (
	"bytes"
	"time"
)

const microsecond = uint64(time.Microsecond)

// v2 reads a cgroup from the unified hierarchy. A controller that is not delegated to it
// has no files there: its part is then nil.
func (r *Reader) v2(in *reads, at *cgroupDirs, detail Detail, s *Sample) {
	in.dir = at.unified
	s.CPU = in.cpuV2()
	s.Memory = in.memoryV2(at.root)
	members := in.text("cgroup.procs")
	processes(members, s)
	if detail == All {
		r.countOpenFiles(in.file, members, s)
	}
	if !at.root { // the machine's is in /proc, on v1, too
		s.CPUPressure = in.pressure("cpu.pressure")
		s.MemoryPressure = in.pressure("memory.pressure")
		s.IOPressure = in.pressure("io.pressure")
	}
	if detail != All || in.err != nil {
		return
	}
	if s.CPU != nil {
		in.schedulerV2(s.CPU)
	}
	if s.Memory != nil {
		in.memoryDetailsV2(s.Memory)
	}
	s.Threads = in.number("pids.current")
	s.ThreadsMax = limit(in.setting("pids.max"))
	in.devicesV2(s)
}

// cpuV2 reads cpu.stat, which has the usage also without the controller.
func (r *reads) cpuV2() *CPU {
	text := r.text("cpu.stat")
	if len(text) == 0 {
		return nil
	}
	c := &CPU{}
	pairs(text, func(name []byte, n uint64) {
		switch string(name) {
		case "usage_usec":
			c.Usage = n * microsecond
		case "user_usec":
			c.User = n * microsecond
		case "system_usec":
			c.System = n * microsecond
		case "nr_periods":
			c.Periods = n
		case "nr_throttled":
			c.ThrottledPeriods = n
		case "throttled_usec":
			c.ThrottledTime = n * microsecond
		case "nr_bursts":
			c.Bursts = n
		case "burst_usec":
			c.BurstTime = n * microsecond
		}
	})
	return c
}

// schedulerV2 reads the weight, which cAdvisor shows as v1's shares, and the quota.
func (r *reads) schedulerV2(c *CPU) {
	if weight := r.setting("cpu.weight"); weight >= 1 && weight <= 10000 {
		c.Shares = 2 + (weight-1)*262142/9999
	}
	quota, period, _ := bytes.Cut(bytes.TrimSpace(r.settingText("cpu.max")), []byte{' '})
	c.Quota, c.Period = limit(parseNumber(quota)), parseNumber(period)
}

// memoryV2 returns nil without the controller. The root has memory.stat alone.
func (r *reads) memoryV2(root bool) *Memory {
	text := r.text("memory.stat")
	if len(text) == 0 {
		return nil
	}
	m := &Memory{Reclaim: &Reclaim{}}
	pairs(text, func(name []byte, n uint64) {
		switch string(name) {
		case "anon":
			m.RSS = n
		case "file":
			m.Cache = n
		case "kernel":
			m.Kernel = n
		case "file_mapped":
			m.MappedFile = n
		case "active_file":
			m.ActiveFile = n
		case "inactive_file":
			m.InactiveFile = n
		case "pgfault":
			m.Faults, m.OwnFaults = n, n
		case "pgmajfault":
			m.MajorFaults, m.OwnMajorFaults = n, n
		case "file_dirty":
			m.Reclaim.Dirty = n
		case "file_writeback":
			m.Reclaim.Writeback = n
		case "pgscan":
			m.Reclaim.Scanned = n
		case "pgsteal":
			m.Reclaim.Stolen = n
		case "workingset_refault_file":
			m.Reclaim.RefaultedFile = n
		case "workingset_refault_anon":
			m.Reclaim.RefaultedAnon = n
		}
	})
	if root { // as the usage of v1's root, and as runc counts it
		m.Usage, m.Limit, m.SwapLimit = m.RSS+m.Cache, Unlimited, Unlimited
	} else {
		m.Usage = r.number("memory.current")
		m.Limit = r.setting("memory.max")
		m.Swap = r.number("memory.swap.current")
		m.SwapLimit = Unlimited
		if text := r.settingText("memory.swap.max"); len(text) > 0 {
			m.SwapLimit = parseNumber(text)
		}
	}
	m.MemorySwapLimit = m.SwapLimit
	m.WorkingSet = m.Usage - min(m.Usage, m.InactiveFile)
	return m
}

func (r *reads) memoryDetailsV2(m *Memory) {
	m.MaxUsage = r.number("memory.peak") // since Linux 5.19
	m.Reservation = r.setting("memory.min")
	r.numbers("memory.events", func(name []byte, n uint64) {
		switch string(name) {
		case "high":
			m.HighEvents = n
		case "max":
			m.Failcnt = n
		case "oom_kill":
			m.OOMKills = n
		}
	})
}

// devicesV2 reads lines of "major:minor rbytes=1 wbytes=2 rios=3 wios=4 …".
func (r *reads) devicesV2(s *Sample) {
	for line := range bytes.Lines(r.text("io.stat")) {
		name, rest, ok := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if !ok {
			continue
		}
		d := s.device(name)
		if d == nil {
			continue
		}
		for field := range bytes.FieldsSeq(rest) {
			key, value, _ := bytes.Cut(field, []byte{'='})
			switch string(key) {
			case "rbytes":
				d.ReadBytes = parseNumber(value)
			case "wbytes":
				d.WrittenBytes = parseNumber(value)
			case "rios":
				d.Reads = parseNumber(value)
			case "wios":
				d.Writes = parseNumber(value)
			}
		}
	}
	s.sortDevices()
}
