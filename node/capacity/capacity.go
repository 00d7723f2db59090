// Package capacity determines the machine's capacity and the part that is allocatable to pods,
// as the kubelet does (pkg/kubelet/nodestatus, pkg/kubelet/cm).
package capacity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/cgroup"
	"podd/config"
	"podd/eviction/threshold"
	"podd/internal/hugepage"
)

// Resources is the result of Find. It is read-only.
type Resources struct {
	// Capacity and Allocatable have cpu, memory, ephemeral-storage, pods, and
	// hugepages-<size> for each size.
	Capacity, Allocatable v1.ResourceList
	// CgroupLimits are the limits that cgroups enforce on all pods together.
	CgroupLimits v1.ResourceList
	// Memory and Swap are in bytes; 0 if unknown.
	Memory, Swap int64
	// Kernel is the kernel's release; empty if unknown.
	Kernel string
}

// Find queries the machine. Call it once, at start. Reserving more than the capacity is an
// error.
func Find(cfg *config.Config) (Resources, error) {
	r := Resources{Capacity: v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(processors()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(int64(maxPods(cfg, processors())), resource.DecimalSI),
	}}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		r.Memory, r.Swap = int64(info.Totalram)*int64(info.Unit), int64(info.Totalswap)*int64(info.Unit)
		r.Capacity[v1.ResourceMemory] = *resource.NewQuantity(r.Memory, resource.BinarySI)
	}
	var disk unix.Statfs_t
	if err := statfsNearestParent(cfg.RootDir, &disk); err == nil {
		// In decimal, because others read the amount that is left of it, which is no multiple
		// of 1024 (kubernetes/kubernetes#137652).
		r.Capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.DecimalSI)
	}
	for size, number := range hugepage.Reserved(hugepage.Dir) {
		name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
		r.Capacity[name] = *resource.NewQuantity(size*number, resource.BinarySI)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		r.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	r.CgroupLimits = r.Capacity.DeepCopy()
	if pids := maxPIDs("/proc/sys/kernel"); pids > 0 {
		r.CgroupLimits[cgroup.ResourcePIDs] = *resource.NewQuantity(pids, resource.DecimalSI)
	}
	if cfg.EnforcePods {
		r.CgroupLimits = less(r.CgroupLimits, cfg.Reserved)
	}
	return r, r.computeAllocatable(cfg)
}

// computeAllocatable subtracts the reserved resources from allocatable.
func (r *Resources) computeAllocatable(cfg *config.Config) error {
	reserved := cfg.Reserved.DeepCopy()
	for i := range cfg.Eviction.Thresholds {
		t := &cfg.Eviction.Thresholds[i]
		if t.Hard() && (t.Signal == threshold.MemoryAvailable || t.Signal == threshold.NodeFSAvailable) {
			name := t.Signal.Resource()
			has, sum := r.Capacity[name], reserved[name]
			kept := t.Value.QuantityOf(has.Value())
			sum.Add(*resource.NewQuantity(kept.Value(), resource.BinarySI))
			reserved[name] = sum
		}
	}
	for name, amount := range reserved {
		if has, ok := r.Capacity[name]; ok && amount.Cmp(has) > 0 {
			return fmt.Errorf("%s of %s is reserved and the machine has %s: lower kubeReserved, systemReserved or evictionHard", amount.String(), name, has.String())
		}
	}
	r.Allocatable = less(r.Capacity, reserved)
	// Huge pages come out of memory, which nothing else can use then.
	memory := r.Allocatable[v1.ResourceMemory]
	for name, amount := range r.Capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(amount)
		}
	}
	if memory.Sign() < 0 {
		memory = *resource.NewQuantity(0, resource.BinarySI)
	}
	if r.Memory > 0 {
		r.Allocatable[v1.ResourceMemory] = memory
	}
	return nil
}

// less returns from minus reserved, never below zero.
func less(from, reserved v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, amount := range from {
		amount = amount.DeepCopy()
		if amount.Sub(reserved[name]); amount.Sign() < 0 {
			amount.Set(0)
		}
		out[name] = amount
	}
	return out
}

// maxPods returns the lower of maxPods and podsPerCore.
func maxPods(cfg *config.Config, processors int) int {
	if cfg.PodsPerCore > 0 {
		return min(cfg.MaxPods, cfg.PodsPerCore*processors)
	}
	return cfg.MaxPods
}

// processors returns the machine's number of CPUs, even if podd itself is bound to
// some of them.
func processors() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || b < a {
			return runtime.NumCPU()
		}
		n += b - a + 1
	}
	return n
}

// maxPIDs returns how many processes and threads the machine can have; 0 if
// unknown.
func maxPIDs(dir string) int64 {
	pids, threads := readInt(filepath.Join(dir, "pid_max")), readInt(filepath.Join(dir, "threads-max"))
	if pids == 0 || threads == 0 {
		return max(pids, threads)
	}
	return min(pids, threads)
}

func readInt(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// statfsNearestParent queries the file system of a directory that may not exist yet, through its
// nearest existing parent.
func statfsNearestParent(dir string, st *unix.Statfs_t) error {
	for {
		err := unix.Statfs(dir, st)
		if err == nil || dir == filepath.Dir(dir) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}
