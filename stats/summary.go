package stats

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
	"podd/stats/kernel"
)

// podInterface is the interface of a pod that its totals are of, as in the kubelet.
const podInterface = "eth0"

// Summary returns /stats/summary. Without storage it is upstream's
// ?only_cpu_and_memory=true: CPU, memory and swap of the node, and of the pods that run.
func (c *Collector) Summary(ctx context.Context, storage bool) (*api.Summary, error) {
	snap, err := c.snapshot(ctx, kernel.Usage)
	if err != nil {
		return nil, err
	}
	out := c.usageSummary(snap)
	if !storage {
		return out, nil
	}
	if err := c.addNode(snap, &out.Node); err != nil {
		return nil, err
	}
	c.addImages(ctx, &out.Node)
	out.Pods = c.withStorage(ctx, snap, out.Pods)
	return out, nil
}

// usageSummary returns a summary of CPU, memory and swap alone.
func (c *Collector) usageSummary(snap *Snapshot) *api.Summary {
	out := &api.Summary{Node: api.NodeStats{NodeName: c.cfg.Node, StartTime: metav1.NewTime(c.cfg.Kernel.Booted())}}
	for i := range snap.all {
		if m := &snap.all[i]; m.Path == "/" {
			out.Node.CPU, out.Node.Memory, out.Node.Swap = cpuOf(m), memoryOf(m), swapOf(m)
		}
	}
	for i := range snap.system {
		s := &snap.system[i]
		out.Node.SystemContainers = append(out.Node.SystemContainers, api.ContainerStats{
			Name: s.name, StartTime: metav1.NewTime(s.started), CPU: cpuOf(&s.measured), Memory: memoryOf(&s.measured), Swap: swapOf(&s.measured),
		})
	}
	out.Pods = c.podUsage(snap)
	return out
}

// addNode adds everything except CPU and memory.
func (c *Collector) addNode(snap *Snapshot, node *api.NodeStats) error {
	fs, err := c.cfg.Storage.NodeFS()
	if err != nil {
		return err
	}
	node.Fs = &fs
	for i := range snap.all {
		if m := &snap.all[i]; m.Path == "/" {
			node.IO = ioOf(m)
			node.Network = networkOf(m, cmp.Or(c.cfg.Kernel.DefaultInterface(), podInterface))
		}
	}
	running, most := c.cfg.Kernel.Tasks()
	node.Rlimit = &api.RlimitStats{Time: metav1.NewTime(snap.Time)}
	if running >= 0 {
		node.Rlimit.NumOfRunningProcesses = &running
	}
	if most >= 0 {
		node.Rlimit.MaxPID = &most
	}
	for i := range snap.system {
		node.SystemContainers[i].IO = ioOf(&snap.system[i].measured)
	}
	return nil
}

// imagesTimeout bounds the question to the runtime for its file systems.
const imagesTimeout = 2 * time.Second

// addImages adds what the runtime says of its file systems, if it does: the rest of the
// summary does not need the runtime.
func (c *Collector) addImages(ctx context.Context, node *api.NodeStats) {
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	stats, err := c.cfg.Images(ctx)
	if err != nil {
		c.cfg.Log.Debug("the summary has no file system of images", "error", err)
		return
	}
	node.Runtime = stats
}

// podUsage returns the pods with a cgroup and a running container, in the order of their
// UIDs.
func (c *Collector) podUsage(snap *Snapshot) []api.PodStats {
	states := statesOf(c.cfg.Pods())
	index := map[pod.UID]int{}
	out := []api.PodStats{}
	for i := range snap.all { // a pod comes before its containers
		m := &snap.all[i]
		if m.isPod() {
			index[normalizeUID(m.Pod)] = len(out)
			out = append(out, api.PodStats{
				PodRef:    api.PodReference{Name: m.who.Pod, Namespace: m.who.Namespace, UID: string(m.who.UID)},
				StartTime: metav1.NewTime(m.Created), Containers: []api.ContainerStats{},
				CPU: cpuOf(m), Memory: memoryOf(m), Swap: swapOf(m), IO: ioOf(m),
			})
			continue
		}
		at, ok := index[normalizeUID(m.Pod)]
		if m.ID == "" || !ok {
			continue
		}
		p := &out[at]
		p.ProcessStats = addProcesses(p.ProcessStats, m.Processes)
		if m.isSandbox() && m.network != nil {
			p.Network = networkOf(m, podInterface)
		}
		if m.isContainer() && states.runs(m) {
			addContainer(p, m, states.started(m))
		}
	}
	out = slices.DeleteFunc(out, func(p api.PodStats) bool { return len(p.Containers) == 0 && p.Network == nil })
	slices.SortFunc(out, func(a, b api.PodStats) int { return strings.Compare(a.PodRef.UID, b.PodRef.UID) })
	return out
}

// addContainer adds a container. If two have one name, an ended one and its successor, the
// younger counts.
func addContainer(p *api.PodStats, m *measured, started metav1.Time) {
	one := api.ContainerStats{Name: m.who.Container, StartTime: started, CPU: cpuOf(m), Memory: memoryOf(m), Swap: swapOf(m), IO: ioOf(m)}
	for i := range p.Containers {
		if have := &p.Containers[i]; have.Name == one.Name {
			if have.StartTime.Before(&one.StartTime) {
				*have = one
			}
			return
		}
	}
	p.Containers = append(p.Containers, one)
}

func addProcesses(have *api.ProcessStats, n uint64) *api.ProcessStats {
	if have != nil {
		n += *have.ProcessCount
	}
	return &api.ProcessStats{ProcessCount: &n}
}

// withStorage adds the pods' disk usage to their other usage. A pod that has no cgroup
// yet has only its disks. A pod that is not desired any more is left out.
func (c *Collector) withStorage(ctx context.Context, snap *Snapshot, used []api.PodStats) []api.PodStats {
	of := make(map[string]*api.PodStats, len(used))
	for i := range used {
		of[used[i].PodRef.UID] = &used[i]
	}
	out := c.cfg.Storage.Pods(ctx, c.cfg.Pods())
	for i := range out {
		p := &out[i]
		u, ok := of[p.PodRef.UID]
		if !ok {
			continue
		}
		p.CPU, p.Memory, p.Swap, p.IO, p.Network, p.ProcessStats = u.CPU, u.Memory, u.Swap, u.IO, u.Network, u.ProcessStats
		for j := range p.Containers {
			have := &p.Containers[j]
			for k := range u.Containers {
				if one := &u.Containers[k]; one.Name == have.Name {
					have.CPU, have.Memory, have.Swap, have.IO = one.CPU, one.Memory, one.Swap, one.IO
				}
			}
		}
	}
	return out
}

// states are the containers' in the pods' statuses, by ID.
type states map[string]*v1.ContainerStatus

func statesOf(pods []*v1.Pod) states {
	all := states{}
	for _, p := range pods {
		for c := range pod.ContainerStatuses(&p.Status) {
			all[pod.RuntimeID(c.ContainerID)] = c
		}
	}
	return all
}

// runs reports whether a container runs: by its status, or by its processes if it is too
// young or too old to be in one.
func (s states) runs(m *measured) bool {
	if st := s[m.ID]; st != nil {
		return st.State.Running != nil
	}
	return m.Processes > 0
}

func (s states) started(m *measured) metav1.Time {
	if st := s[m.ID]; st != nil && st.State.Running != nil {
		return st.State.Running.StartedAt
	}
	return metav1.NewTime(m.Created)
}

func cpuOf(m *measured) *api.CPUStats {
	if m.CPU == nil {
		return nil
	}
	return &api.CPUStats{Time: metav1.NewTime(m.Time), UsageNanoCores: m.rate, UsageCoreNanoSeconds: &m.CPU.Usage, PSI: psi(m.CPUPressure)}
}

func memoryOf(m *measured) *api.MemoryStats {
	if m.Memory == nil {
		return nil
	}
	out := &api.MemoryStats{
		Time: metav1.NewTime(m.Time), UsageBytes: &m.Memory.Usage, WorkingSetBytes: &m.Memory.WorkingSet, RSSBytes: &m.Memory.RSS,
		PageFaults: &m.Memory.Faults, MajorPageFaults: &m.Memory.MajorFaults, PSI: psi(m.MemoryPressure),
	}
	if m.Memory.Limit < kernel.Unlimited {
		available := m.Memory.Available()
		out.AvailableBytes = &available
	}
	return out
}

func swapOf(m *measured) *api.SwapStats {
	if m.Memory == nil {
		return nil
	}
	out := &api.SwapStats{Time: metav1.NewTime(m.Time), SwapUsageBytes: &m.Memory.Swap}
	if m.Memory.SwapLimit < kernel.Unlimited {
		out.SwapAvailableBytes = remaining(m.Memory.SwapLimit, m.Memory.Swap)
	}
	return out
}

// ioOf returns nil where the kernel has no pressure of devices.
func ioOf(m *measured) *api.IOStats {
	if m.IOPressure == nil {
		return nil
	}
	return &api.IOStats{Time: metav1.NewTime(m.Time), PSI: psi(m.IOPressure)}
}

// psi passes the kernel's microseconds on, as the kubelet does, although the API's comment
// names nanoseconds.
func psi(p *kernel.Pressure) *api.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s kernel.Stall) api.PSIData {
		return api.PSIData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &api.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

// networkOf returns the interfaces, with the totals of the one named.
func networkOf(m *measured, named string) *api.NetworkStats {
	out := &api.NetworkStats{Time: metav1.NewTime(m.Time)}
	for i := range m.network {
		n := &m.network[i]
		one := api.InterfaceStats{Name: n.Name, RxBytes: &n.RxBytes, RxErrors: &n.RxErrors, TxBytes: &n.TxBytes, TxErrors: &n.TxErrors}
		if n.Name == named {
			out.InterfaceStats = one
		}
		out.Interfaces = append(out.Interfaces, one)
	}
	return out
}

// remaining is how much of a limit is left.
func remaining(limit, used uint64) *uint64 {
	n := limit - min(limit, used)
	return &n
}
