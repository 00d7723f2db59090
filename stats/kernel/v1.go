package kernel

import (
	"bytes"
	"time"
)

// userHertz is the unit of cpuacct.stat and of /proc, ticks a second; the kernel's
// interface has 100 on every architecture that Go supports.
const userHertz = 100

const tick = uint64(time.Second / userHertz)

// v1 reads a cgroup from a hierarchy per controller.
func (r *Reader) v1(in *reads, at place, detail Detail, s *Sample) {
	if at.cpuacct != "" {
		in.dir, s.CPU = at.cpuacct, &CPU{}
		s.CPU.Usage = in.number("cpuacct.usage")
	}
	if at.memory != "" {
		in.dir, s.Memory = at.memory, &Memory{}
		in.memoryV1(s.Memory)
	}
	if at.pids != "" {
		in.dir = at.pids
		processes(in.text("cgroup.procs"), s)
	}
	if detail == All && in.err == nil {
		in.detailsV1(at, s)
	}
}

func (r *reads) detailsV1(at place, s *Sample) {
	if s.CPU != nil {
		r.dir = at.cpuacct
		r.numbers("cpuacct.stat", func(name []byte, n uint64) {
			switch string(name) {
			case "user":
				s.CPU.User = n * tick
			case "system":
				s.CPU.System = n * tick
			}
		})
		if at.cpu != "" {
			r.dir = at.cpu
			r.schedulerV1(s.CPU)
		}
	}
	if s.Memory != nil {
		r.dir = at.memory
		r.memoryDetailsV1(s.Memory)
	}
	if at.pids != "" {
		r.dir = at.pids
		s.Threads = r.number("pids.current")
		s.ThreadsMax = limit(r.number("pids.max"))
	}
	if at.blkio != "" {
		r.dir = at.blkio
		r.devicesV1(s)
	}
}

// limit returns 0 for none, as cAdvisor shows it.
func limit(n uint64) uint64 {
	if n >= Unlimited {
		return 0
	}
	return n
}

func (r *reads) memoryV1(m *Memory) {
	m.Usage = r.number("memory.usage_in_bytes")
	m.Limit = r.number("memory.limit_in_bytes")
	m.SwapLimit, m.MemorySwapLimit = Unlimited, Unlimited
	if both := r.number("memory.memsw.limit_in_bytes"); both > 0 { // no such file: swap is not accounted
		m.MemorySwapLimit = both
		if both < Unlimited {
			m.SwapLimit = both - min(both, m.Limit)
		}
	}
	r.numbers("memory.stat", func(name []byte, n uint64) {
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
}

func (r *reads) memoryDetailsV1(m *Memory) {
	m.MaxUsage = r.number("memory.max_usage_in_bytes")
	m.Failcnt = r.number("memory.failcnt")
	m.Kernel = r.number("memory.kmem.usage_in_bytes")
	m.Reservation = r.number("memory.soft_limit_in_bytes")
	r.numbers("memory.oom_control", func(name []byte, n uint64) {
		if string(name) == "oom_kill" {
			m.OOMKills = n
		}
	})
}

func (r *reads) schedulerV1(c *CPU) {
	r.numbers("cpu.stat", func(name []byte, n uint64) {
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
	})
	c.Shares = r.number("cpu.shares")
	c.Period = r.number("cpu.cfs_period_us")
	c.Quota = r.number("cpu.cfs_quota_us") // -1 for none
}

// devicesV1 reads what the throttling layer counts, which sees every request whatever
// scheduler the device has.
func (r *reads) devicesV1(s *Sample) {
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
	each(r.text("blkio.throttle.io_service_bytes_recursive"),
		func(d *Device, n uint64) { d.ReadBytes = n }, func(d *Device, n uint64) { d.WrittenBytes = n })
	each(r.text("blkio.throttle.io_serviced_recursive"),
		func(d *Device, n uint64) { d.Reads = n }, func(d *Device, n uint64) { d.Writes = n })
	s.sortDevices()
}
