package stats

import (
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/stats/kernel"
)

// family is a metric of /metrics/cadvisor: values passes those of a row on, each with its
// further labels. Names, kinds and help texts are cAdvisor's (metrics/prometheus.go).
type family struct {
	name, kind, help string
	// noTimestamp says that the series have no timestamp: they are of settings.
	noTimestamp bool
	values      func(r *row, out func(value float64, extra string))
}

// families are those that the kubelet has cAdvisor collect. Left out are those that are
// always 0 or -1 there (load averages, task states, health), I/O times and merges, which cgroups
// do not count, and the operations of v1 beside reads and writes, which count the same bytes again.
var families = []family{
	ofIO("container_fs_reads_bytes_total", "Cumulative count of bytes read", func(d *kernel.Device) uint64 { return d.ReadBytes }),
	ofIO("container_fs_reads_total", "Cumulative count of reads completed", func(d *kernel.Device) uint64 { return d.Reads }),
	ofIO("container_fs_writes_bytes_total", "Cumulative count of bytes written", func(d *kernel.Device) uint64 { return d.WrittenBytes }),
	ofIO("container_fs_writes_total", "Cumulative count of writes completed", func(d *kernel.Device) uint64 { return d.Writes }),
	{name: "container_blkio_device_usage_total", kind: counter, help: "Blkio Device bytes usage", values: func(r *row, out func(float64, string)) {
		for i := range r.Devices {
			out(float64(r.Devices[i].ReadBytes), r.devices[i].reads)
			out(float64(r.Devices[i].WrittenBytes), r.devices[i].writes)
		}
	}},
	ofNodeDisk("container_fs_inodes_free", "Number of available Inodes", func(f *api.FsStats) *uint64 { return f.InodesFree }),
	ofNodeDisk("container_fs_inodes_total", "Number of Inodes", func(f *api.FsStats) *uint64 { return f.Inodes }),
	ofDisk("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", func(f *api.FsStats) *uint64 { return f.CapacityBytes }),
	ofDisk("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", func(f *api.FsStats) *uint64 { return f.UsedBytes }),
	{name: "container_last_seen", kind: gauge, help: "Last time a container was seen by the exporter", values: func(r *row, out func(float64, string)) {
		out(float64(r.Time.Unix()), "")
	}},
	{name: "container_start_time_seconds", kind: gauge, noTimestamp: true, help: "Start time of the container since unix epoch in seconds.", values: func(r *row, out func(float64, string)) {
		out(float64(r.started.Unix()), "")
	}},

	{name: "container_cpu_usage_seconds_total", kind: counter, help: "Cumulative cpu time consumed in seconds.", values: func(r *row, out func(float64, string)) {
		if r.CPU != nil {
			out(seconds(r.CPU.Usage), `cpu="total"`)
		}
	}},
	ofCPU("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", func(c *kernel.CPU) float64 { return seconds(c.User) }),
	ofCPU("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", func(c *kernel.CPU) float64 { return seconds(c.System) }),
	ofQuota("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", func(c *kernel.CPU) float64 { return float64(c.Periods) }),
	ofQuota("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", func(c *kernel.CPU) float64 { return float64(c.ThrottledPeriods) }),
	ofQuota("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", func(c *kernel.CPU) float64 { return seconds(c.ThrottledTime) }),
	ofQuota("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.", func(c *kernel.CPU) float64 { return float64(c.Bursts) }),
	ofQuota("container_cpu_cfs_burst_seconds_total", "Total time duration the container has been bursted.", func(c *kernel.CPU) float64 { return seconds(c.BurstTime) }),
	ofCPUSpec("container_spec_cpu_period", "CPU period of the container.", func(c *kernel.CPU) (uint64, bool) { return c.Period, true }),
	ofCPUSpec("container_spec_cpu_quota", "CPU quota of the container.", func(c *kernel.CPU) (uint64, bool) { return c.Quota, c.Quota != 0 }),
	ofCPUSpec("container_spec_cpu_shares", "CPU share of the container.", func(c *kernel.CPU) (uint64, bool) { return c.Shares, true }),

	ofMemory("container_memory_cache", gauge, "Number of bytes of page cache memory.", func(m *kernel.Memory) uint64 { return m.Cache }),
	ofMemory("container_memory_rss", gauge, "Size of RSS in bytes.", func(m *kernel.Memory) uint64 { return m.RSS }),
	ofMemory("container_memory_kernel_usage", gauge, "Size of kernel memory allocated in bytes.", func(m *kernel.Memory) uint64 { return m.Kernel }),
	ofMemory("container_memory_mapped_file", gauge, "Size of memory mapped files in bytes.", func(m *kernel.Memory) uint64 { return m.MappedFile }),
	ofMemory("container_memory_swap", gauge, "Container swap usage in bytes.", func(m *kernel.Memory) uint64 { return m.Swap }),
	ofMemory("container_memory_failcnt", counter, "Number of memory usage hits limits", func(m *kernel.Memory) uint64 { return m.Failcnt }),
	ofMemory("container_memory_usage_bytes", gauge, "Current memory usage in bytes, including all memory regardless of when it was accessed", func(m *kernel.Memory) uint64 { return m.Usage }),
	ofMemory("container_memory_max_usage_bytes", gauge, "Maximum memory usage recorded in bytes", func(m *kernel.Memory) uint64 { return m.MaxUsage }),
	ofMemory("container_memory_working_set_bytes", gauge, "Current working set in bytes.", func(m *kernel.Memory) uint64 { return m.WorkingSet }),
	ofMemory("container_memory_total_active_file_bytes", gauge, "Current total active file in bytes.", func(m *kernel.Memory) uint64 { return m.ActiveFile }),
	ofMemory("container_memory_total_inactive_file_bytes", gauge, "Current total inactive file in bytes.", func(m *kernel.Memory) uint64 { return m.InactiveFile }),
	{name: "container_memory_failures_total", kind: counter, help: "Cumulative count of memory allocation failures.", values: func(r *row, out func(float64, string)) {
		if m := r.Memory; m != nil {
			out(float64(m.OwnFaults), `failure_type="pgfault",scope="container"`)
			out(float64(m.OwnMajorFaults), `failure_type="pgmajfault",scope="container"`)
			out(float64(m.Faults), `failure_type="pgfault",scope="hierarchy"`)
			out(float64(m.MajorFaults), `failure_type="pgmajfault",scope="hierarchy"`)
		}
	}},
	ofMemory("container_memory_events_high_total", counter, "Cumulative count of memory.high throttle events for the container", func(m *kernel.Memory) uint64 { return m.HighEvents }),
	ofMemory("container_memory_events_max_total", counter, "Cumulative count of memory.max limit hit events for the container", func(m *kernel.Memory) uint64 { return m.Failcnt }),
	ofReclaim("container_memory_file_dirty_bytes", gauge, "Number of bytes of file cache that has been modified but not yet written back to disk.", func(m *kernel.Reclaim) uint64 { return m.Dirty }),
	ofReclaim("container_memory_file_writeback_bytes", gauge, "Number of bytes of file cache that is currently being written back to disk.", func(m *kernel.Reclaim) uint64 { return m.Writeback }),
	ofReclaim("container_memory_pgscan_total", counter, "Cumulative number of pages scanned by the page reclaim algorithm.", func(m *kernel.Reclaim) uint64 { return m.Scanned }),
	ofReclaim("container_memory_pgsteal_total", counter, "Cumulative number of pages reclaimed by the page reclaim algorithm.", func(m *kernel.Reclaim) uint64 { return m.Stolen }),
	ofReclaim("container_memory_workingset_refault_file_total", counter, "Cumulative number of refaults of previously evicted file pages.", func(m *kernel.Reclaim) uint64 { return m.RefaultedFile }),
	ofReclaim("container_memory_workingset_refault_anon_total", counter, "Cumulative number of refaults of previously evicted anonymous pages.", func(m *kernel.Reclaim) uint64 { return m.RefaultedAnon }),
	ofMemory("container_oom_events_total", counter, "Count of out of memory events observed for the container", func(m *kernel.Memory) uint64 { return m.OOMKills }),
	ofMemorySpec("container_spec_memory_limit_bytes", "Memory limit for the container.", func(m *kernel.Memory) uint64 { return m.Limit }),
	ofMemorySpec("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", func(m *kernel.Memory) uint64 { return m.MemorySwapLimit }),
	ofMemorySpec("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.", func(m *kernel.Memory) uint64 { return m.Reservation }),

	ofNetwork("container_network_receive_bytes_total", "Cumulative count of bytes received", func(n *kernel.Interface) uint64 { return n.RxBytes }),
	ofNetwork("container_network_receive_packets_total", "Cumulative count of packets received", func(n *kernel.Interface) uint64 { return n.RxPackets }),
	ofNetwork("container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving", func(n *kernel.Interface) uint64 { return n.RxDropped }),
	ofNetwork("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", func(n *kernel.Interface) uint64 { return n.RxErrors }),
	ofNetwork("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", func(n *kernel.Interface) uint64 { return n.TxBytes }),
	ofNetwork("container_network_transmit_packets_total", "Cumulative count of packets transmitted", func(n *kernel.Interface) uint64 { return n.TxPackets }),
	ofNetwork("container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting", func(n *kernel.Interface) uint64 { return n.TxDropped }),
	ofNetwork("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", func(n *kernel.Interface) uint64 { return n.TxErrors }),

	ofTasks("container_file_descriptors", "Number of open file descriptors for the container.", func(s *kernel.Sample) uint64 { return s.OpenFiles }),
	ofTasks("container_sockets", "Number of open sockets for the container.", func(s *kernel.Sample) uint64 { return s.OpenSockets }),
	{name: "container_ulimits_soft", kind: gauge, help: "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice", values: func(r *row, out func(float64, string)) {
		if r.MaxOpenFiles != 0 {
			out(float64(r.MaxOpenFiles), `ulimit="max_open_files"`)
		}
	}},
	ofTasks("container_processes", "Number of processes running inside the container.", func(s *kernel.Sample) uint64 { return s.Processes }),
	ofTasks("container_threads", "Number of threads running inside the container", func(s *kernel.Sample) uint64 { return s.Threads }),
	ofTasks("container_threads_max", "Maximum number of threads allowed inside the container, infinity if value is zero", func(s *kernel.Sample) uint64 { return s.ThreadsMax }),

	ofPressure("container_pressure_cpu_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to CPU congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.CPUPressure }, full),
	ofPressure("container_pressure_cpu_waiting_seconds_total", "Total time duration tasks in the container have waited due to CPU congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.CPUPressure }, some),
	ofPressure("container_pressure_memory_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to memory congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.MemoryPressure }, full),
	ofPressure("container_pressure_memory_waiting_seconds_total", "Total time duration tasks in the container have waited due to memory congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.MemoryPressure }, some),
	ofPressure("container_pressure_io_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to IO congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.IOPressure }, full),
	ofPressure("container_pressure_io_waiting_seconds_total", "Total time duration tasks in the container have waited due to IO congestion.",
		func(s *kernel.Sample) *kernel.Pressure { return s.IOPressure }, some),
}

func ofCPU(name, help string, value func(*kernel.CPU) float64) family {
	return family{name: name, kind: counter, help: help, values: func(r *row, out func(float64, string)) {
		if r.CPU != nil {
			out(value(r.CPU), "")
		}
	}}
}

// ofQuota is of cgroups with a quota only.
func ofQuota(name, help string, value func(*kernel.CPU) float64) family {
	return family{name: name, kind: counter, help: help, values: func(r *row, out func(float64, string)) {
		if r.CPU != nil && r.CPU.Quota != 0 {
			out(value(r.CPU), "")
		}
	}}
}

func ofCPUSpec(name, help string, value func(*kernel.CPU) (uint64, bool)) family {
	return family{name: name, kind: gauge, help: help, noTimestamp: true, values: func(r *row, out func(float64, string)) {
		if r.CPU == nil {
			return
		}
		if n, ok := value(r.CPU); ok {
			out(float64(n), "")
		}
	}}
}

func ofMemory(name, kind, help string, value func(*kernel.Memory) uint64) family {
	return family{name: name, kind: kind, help: help, values: func(r *row, out func(float64, string)) {
		if r.Memory != nil {
			out(float64(value(r.Memory)), "")
		}
	}}
}

// ofReclaim is of cgroup v2 only.
func ofReclaim(name, kind, help string, value func(*kernel.Reclaim) uint64) family {
	return family{name: name, kind: kind, help: help, values: func(r *row, out func(float64, string)) {
		if r.Memory != nil && r.Memory.Reclaim != nil {
			out(float64(value(r.Memory.Reclaim)), "")
		}
	}}
}

// ofMemorySpec shows no limit as 0.
func ofMemorySpec(name, help string, value func(*kernel.Memory) uint64) family {
	return family{name: name, kind: gauge, help: help, noTimestamp: true, values: func(r *row, out func(float64, string)) {
		if r.Memory == nil {
			return
		}
		n := value(r.Memory)
		if n >= kernel.Unlimited {
			n = 0
		}
		out(float64(n), "")
	}}
}

func ofNetwork(name, help string, value func(*kernel.Interface) uint64) family {
	return family{name: name, kind: counter, help: help, values: func(r *row, out func(float64, string)) {
		for i := range r.network {
			out(float64(value(&r.network[i])), r.interfaces[i])
		}
	}}
}

func ofIO(name, help string, value func(*kernel.Device) uint64) family {
	return family{name: name, kind: counter, help: help, values: func(r *row, out func(float64, string)) {
		for i := range r.Devices {
			out(float64(value(&r.Devices[i])), r.devices[i].device)
		}
	}}
}

// ofDisk is of containers' writable layers, which cAdvisor does not measure with
// containerd, and of the node's file system, under the root.
func ofDisk(name, help string, value func(*api.FsStats) *uint64) family {
	return family{name: name, kind: gauge, help: help, values: func(r *row, out func(float64, string)) {
		if r.disk == nil {
			return
		}
		if n := value(r.disk); n != nil {
			out(float64(*n), r.diskDevice)
		}
	}}
}

// ofNodeDisk covers the node's file system alone. The inodes of a container's layer are those
// of the whole disk, which say nothing about the container.
func ofNodeDisk(name, help string, value func(*api.FsStats) *uint64) family {
	f := ofDisk(name, help, value)
	all := f.values
	f.values = func(r *row, out func(float64, string)) {
		if r.Path == "/" {
			all(r, out)
		}
	}
	return f
}

func ofTasks(name, help string, value func(*kernel.Sample) uint64) family {
	return family{name: name, kind: gauge, help: help, values: func(r *row, out func(float64, string)) {
		out(float64(value(&r.Sample)), "")
	}}
}

func some(p *kernel.Pressure) uint64 { return p.Some.Total }
func full(p *kernel.Pressure) uint64 { return p.Full.Total }

func ofPressure(name, help string, of func(*kernel.Sample) *kernel.Pressure, total func(*kernel.Pressure) uint64) family {
	return family{name: name, kind: counter, help: help, values: func(r *row, out func(float64, string)) {
		if p := of(&r.Sample); p != nil {
			out(float64(total(p))/float64(time.Second/time.Microsecond), "")
		}
	}}
}
