package kernel

import "time"

// Unlimited is the least limit that means none, in bytes: the kernel rounds the greatest
// one to pages. It is cAdvisor's.
const Unlimited = uint64(1) << 62

// Sample is what a cgroup, with those below it, has used. Counters begin when the cgroup
// was made.
type Sample struct {
	// Time is when it was read, Created when the cgroup was made, or later: the kernel notes
	// when it first looked a directory up since it last dropped it from memory.
	Time, Created time.Time
	// CPU and Memory are nil without their controllers.
	CPU    *CPU
	Memory *Memory
	// Processes are those of the cgroup itself, without the ones below it; FirstPID is one
	// of them, 0 for none.
	Processes uint64
	FirstPID  int
	// Threads are also those of cgroups below; ThreadsMax is 0 for no limit.
	Threads, ThreadsMax uint64
	// OpenFiles and OpenSockets, which are files, too, are counted as Processes are.
	// MaxOpenFiles is the soft limit of FirstPID: -1 for none, 0 if unknown.
	OpenFiles, OpenSockets uint64
	MaxOpenFiles           int64
	// Devices are what was read and written, sorted by device.
	Devices []Device
	// CPUPressure, MemoryPressure and IOPressure are nil where the kernel does not have
	// them.
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// CPU is time on processors, in nanoseconds unless noted.
type CPU struct {
	Usage, User, System uint64
	// Periods are those in which a quota was enforced; in ThrottledPeriods it was used
	// up. Bursts are periods in which more than the quota was used.
	Periods, ThrottledPeriods, ThrottledTime, Bursts, BurstTime uint64
	// Shares are v1's, converted on v2. Quota is microseconds in each Period, which is
	// also microseconds; 0 for none.
	Shares, Quota, Period uint64
}

// Memory is bytes unless noted.
type Memory struct {
	Usage, MaxUsage uint64
	// WorkingSet is Usage without InactiveFile, which the kernel takes back first.
	WorkingSet                     uint64
	RSS, Cache, MappedFile, Kernel uint64
	ActiveFile, InactiveFile       uint64
	Swap                           uint64
	Failcnt                        uint64 // how often Limit was hit
	HighEvents                     uint64 // how often memory.high was exceeded; 0 on v1, which has none
	Faults, MajorFaults            uint64 // page faults, also of cgroups below
	OwnFaults, OwnMajorFaults      uint64 // without cgroups below; on v2 the same
	Limit, Reservation             uint64 // Limit at Unlimited or above is none
	SwapLimit                      uint64 // of swap alone; Unlimited or above is none
	MemorySwapLimit                uint64 // as the kernel has it: on v1 of memory and swap together
	// HugePages is what the machine sets aside for huge pages; 0 for a cgroup below the root.
	// It is part of Limit, and of no working set.
	HugePages uint64
	OOMKills  uint64   // processes that the kernel killed; on v1 without cgroups below
	Reclaim   *Reclaim // nil on v1, which does not count it
}

// Reclaim is what the kernel did to take memory back, in pages, and what it must write to disk
// before it can, in bytes.
type Reclaim struct {
	Dirty, Writeback             uint64
	Scanned, Stolen              uint64
	RefaultedFile, RefaultedAnon uint64 // were taken back, and were needed again
}

// Available returns what is left of the limit, in bytes: what is neither in the working set
// nor set aside for huge pages (kubernetes/kubernetes#138127).
func (m *Memory) Available() uint64 { return m.Limit - min(m.Limit, m.WorkingSet+m.HugePages) }

// Device is what was read from a block device and written to it, in bytes and requests.
type Device struct {
	Major, Minor                           uint64
	ReadBytes, WrittenBytes, Reads, Writes uint64
}

// Pressure is how long tasks waited for a resource.
type Pressure struct{ Some, Full Stall }

// Stall is microseconds in all, and the percentage of the last 10, 60 and 300 seconds.
type Stall struct {
	Total                uint64
	Avg10, Avg60, Avg300 float64
}

// Interface is a network interface: bytes and packets.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}
