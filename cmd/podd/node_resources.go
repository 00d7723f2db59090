package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/admission"
	"podd/cgroup"
	"podd/config"
	"podd/internal/hugepage"
)

// nodeResources are what the machine has and what of it pods may have, as the
// kubelet reckons (pkg/kubelet/nodestatus, pkg/kubelet/cm). They are found out
// once, at start.
type nodeResources struct {
	// capacity and allocatable have cpu, memory, ephemeral-storage, pods, and
	// hugepages- of each size.
	capacity, allocatable v1.ResourceList
	// bounds are what all pods together are held to by cgroups.
	bounds v1.ResourceList
	// memory and swap are in bytes; 0 where unknown.
	memory, swap int64
	kernel       string
}

// findResources asks the machine. It is an error to reserve more than it has.
func findResources(cfg *config.Config) (nodeResources, error) {
	r := nodeResources{capacity: v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(processors()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(int64(maxPods(cfg, processors())), resource.DecimalSI),
	}}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		r.memory, r.swap = int64(info.Totalram)*int64(info.Unit), int64(info.Totalswap)*int64(info.Unit)
		r.capacity[v1.ResourceMemory] = *resource.NewQuantity(r.memory, resource.BinarySI)
	}
	var disk unix.Statfs_t
	if err := statfsAbove(cfg.RootDir, &disk); err == nil {
		r.capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI)
	}
	for size, number := range hugepage.OfKernel(hugepage.Dir) {
		name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
		r.capacity[name] = *resource.NewQuantity(size*number, resource.BinarySI)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		r.kernel = unix.ByteSliceToString(uts.Release[:])
	}
	r.bounds = r.capacity.DeepCopy()
	if pids := maxPIDs("/proc/sys/kernel"); pids > 0 {
		r.bounds[cgroup.ResourcePIDs] = *resource.NewQuantity(pids, resource.DecimalSI)
	}
	if cfg.EnforcePods {
		r.bounds = less(r.bounds, cfg.Reserved)
	}
	return r, r.reserve(cfg)
}

// reserve subtracts what pods may not have.
func (r *nodeResources) reserve(cfg *config.Config) error {
	reserved := cfg.Reserved.DeepCopy()
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		if threshold, ok := cfg.EvictionHard[signal]; ok {
			sum := reserved[name]
			sum.Add(*resource.NewQuantity(thresholdOf(threshold, r.capacity[name]), resource.BinarySI))
			reserved[name] = sum
		}
	}
	for name, amount := range reserved {
		if has, ok := r.capacity[name]; ok && amount.Cmp(has) > 0 {
			return fmt.Errorf("%s of %s is reserved and the machine has %s: lower kubeReserved, systemReserved or evictionHard", amount.String(), name, has.String())
		}
	}
	r.allocatable = less(r.capacity, reserved)
	// Huge pages are set aside in memory, and nobody else can have it.
	memory := r.allocatable[v1.ResourceMemory]
	for name, amount := range r.capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(amount)
		}
	}
	if memory.Sign() < 0 {
		memory = *resource.NewQuantity(0, resource.BinarySI)
	}
	if r.memory > 0 {
		r.allocatable[v1.ResourceMemory] = memory
	}
	return nil
}

// less is from without what is reserved of it, never below nothing.
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

// thresholdOf is an eviction threshold in bytes; the configuration was checked.
func thresholdOf(threshold string, capacity resource.Quantity) int64 {
	if text, ok := strings.CutSuffix(threshold, "%"); ok {
		part, _ := strconv.ParseFloat(text, 32)
		return int64(float64(capacity.Value()) * float64(float32(part)/100))
	}
	q := resource.MustParse(threshold)
	return q.Value()
}

// maxPods is the lesser of the two bounds.
func maxPods(cfg *config.Config, processors int) int {
	if cfg.PodsPerCore > 0 {
		return min(cfg.MaxPods, cfg.PodsPerCore*processors)
	}
	return cfg.MaxPods
}

// processors are the machine's, also where podd itself is bound to some of them.
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

// maxPIDs is how many processes and threads the machine can have; 0 if unknown.
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

// statfsAbove asks for the file system of a directory that is perhaps yet to be
// made.
func statfsAbove(dir string, st *unix.Statfs_t) error {
	for {
		err := unix.Statfs(dir, st)
		if err == nil || dir == filepath.Dir(dir) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// cgroupTree is the part of the hierarchies that podd's pods have, for a driver.
func (n *node) cgroupTree(driver cgroup.Driver) *cgroup.Tree {
	return cgroup.NewTree(n.facts, driver, n.cgroupRoot(), cgroup.Settings{
		NoCPUQuota: !n.cfg.CPUQuota, CPUPeriod: n.cfg.CPUQuotaPeriod, PodPIDs: n.cfg.PodPIDsLimit, Pods: n.resources.bounds, Log: n.log,
	})
}

// newAdmission builds what decides whether pods may run here. What the runtime
// can do is known from its greeting on, before any pod is taken up.
func (n *node) newAdmission() error {
	sysctls, err := admission.NewSysctls(n.resources.kernel, n.cfg.UnsafeSysctls)
	if err != nil {
		return fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	facts := admission.Node{
		Name: n.cfg.NodeName, Labels: admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels), Taints: n.cfg.Taints,
		Allocatable: n.resources.allocatable, Sysctls: sysctls, AppArmor: admission.HostAppArmor(), Swap: n.client.GetsSwap,
	}
	without, with := facts, facts
	with.StrictGroups = true
	n.admission = admission.NewGate(func() *admission.Node {
		if n.strictGroups.Load() {
			return &with
		}
		return &without
	}, n.registry)
	return nil
}

// EnsureCgroup makes the pod's cgroup before its sandbox.
func (c podCgroups) EnsureCgroup(ctx context.Context, p *v1.Pod) error {
	return c.n.cgroups.Load().Ensure(ctx, p)
}

// resizer is what resizes ask of the node.
type resizer struct {
	podCgroups
	*admission.Gate
}

// RaiseCgroup and HoldCgroup are for resizes: before and after the containers'.
func (c podCgroups) RaiseCgroup(ctx context.Context, p *v1.Pod) error {
	return c.n.cgroups.Load().Raise(ctx, p)
}

func (c podCgroups) HoldCgroup(ctx context.Context, p *v1.Pod) error {
	return c.n.cgroups.Load().Update(ctx, p)
}

// MemoryLimit is in bytes; 0 for none.
func (c podCgroups) MemoryLimit(p *v1.Pod) (now, next int64) {
	return c.n.cgroups.Load().MemoryLimit(p)
}

// MemoryUsage is in bytes, of the pod where containerID is empty.
func (c podCgroups) MemoryUsage(p *v1.Pod, containerID string) (int64, error) {
	return c.n.cgroups.Load().Usage(p, containerID)
}

// warnOfBounds says what the configuration asks for and this kernel cannot do.
func (n *node) warnOfBounds(log *slog.Logger) {
	for controller, asked := range map[string]bool{"pids": n.cfg.PodPIDsLimit > 0, "cpu": true, "memory": true} {
		if _, ok := n.facts.Controllers[controller]; asked && !ok {
			log.Warn("pods are not bounded: the kernel has no such cgroup controller, or does not pass it on", "controller", controller)
		}
	}
}
