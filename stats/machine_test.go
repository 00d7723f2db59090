package stats

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
	"podd/stats/kernel"
)

// machine is a node whose kernel is files.
type machine struct {
	*testing.T
	dir    string
	v2     bool
	groups []Group
	known  []pod.Identity
	pods   []*v1.Pod

	asked  atomic.Int32 // how often the runtime was
	listed atomic.Int32 // how often the cgroups were
	fails  error        // of the runtime
	noDisk error        // of the node's file system
	hold   chan struct{}
}

// newMachine has a pod "web" with the containers "main", which runs, and "old", which has
// ended, and a sandbox.
func newMachine(t *testing.T, v2 bool) *machine {
	m := &machine{T: t, dir: t.TempDir(), v2: v2}
	started := metav1.NewTime(time.Unix(1_700_000_000, 0))
	m.pods = []*v1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"},
		Status: v1.PodStatus{StartTime: &started, ContainerStatuses: []v1.ContainerStatus{
			{Name: "main", ContainerID: "containerd://main1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}},
			{Name: "old", ContainerID: "containerd://old1", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
		}},
	}}
	m.known = []pod.Identity{
		{ID: "box", UID: "u-1", Pod: "web", Namespace: "shop", Image: "pause:1"},
		{ID: "main1", UID: "u-1", Pod: "web", Namespace: "shop", Container: "main", Image: `docker.io/library/web:1`},
		{ID: "old1", UID: "u-1", Pod: "web", Namespace: "shop", Container: "old", Image: "old"},
	}
	m.add(Group{Path: "/kubepods"}, 0, 9e9, 300)
	m.add(Group{Path: "/kubepods/podu-1", Pod: "u-1"}, 0, 8e9, 200)
	m.add(Group{Path: "/kubepods/podu-1/box", Pod: "u-1", ID: "box"}, os.Getppid(), 1e9, 10)
	m.add(Group{Path: "/kubepods/podu-1/main1", Pod: "u-1", ID: "main1"}, os.Getppid(), 2_500_000_000, 100)
	m.add(Group{Path: "/kubepods/podu-1/old1", Pod: "u-1", ID: "old1"}, 0, 3e9, 0)
	m.files("", 0, 20e9, 1000)
	m.file("proc/meminfo", "MemTotal: 2000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	m.file("proc/loadavg", "0 0 0 1/77 5\n")
	m.file("proc/sys/kernel/pid_max", "1000")
	m.file("proc/cpuinfo", "processor : 0\n")
	const dev = "a\nb\n lo: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\neth0: 500 5 1 2 0 0 0 0 600 6 3 4 0 0 0 0\n"
	m.file("proc/1/net/dev", strings.ReplaceAll(dev, "500", "9000"))
	m.file(fmt.Sprintf("proc/%d/net/dev", os.Getppid()), dev)
	return m
}

func (m *machine) file(name, text string) {
	m.Helper()
	path := filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.Fatal(err)
	}
}

// add makes a cgroup: pid is of its process, 0 for none.
func (m *machine) add(g Group, pid int, cpu float64, memory int) {
	m.groups = append(m.groups, g)
	m.files(g.Path, pid, cpu, memory)
}

func (m *machine) files(rel string, pid int, cpu float64, memory int) {
	procs := ""
	if pid != 0 {
		procs = strconv.Itoa(pid) + "\n"
	}
	if m.v2 {
		m.file("cgroup"+rel+"/cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 1\n", int(cpu/1000)))
		m.file("cgroup"+rel+"/cpu.max", "50000 100000\n")
		m.file("cgroup"+rel+"/memory.current", strconv.Itoa(memory))
		m.file("cgroup"+rel+"/memory.max", "max")
		m.file("cgroup"+rel+"/memory.stat", fmt.Sprintf("anon %d\nfile 0\ninactive_file 4\n", memory))
		m.file("cgroup"+rel+"/cgroup.procs", procs)
		m.file("cgroup"+rel+"/io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n")
		return
	}
	m.file("cgroup"+rel+"/cpuacct.usage", strconv.Itoa(int(cpu)))
	m.file("cgroup"+rel+"/cpu.cfs_quota_us", "50000\n")
	m.file("cgroup"+rel+"/memory.usage_in_bytes", strconv.Itoa(memory))
	m.file("cgroup"+rel+"/memory.limit_in_bytes", "9223372036854771712")
	m.file("cgroup"+rel+"/memory.stat", "total_inactive_file 4\n")
	m.file("cgroup"+rel+"/cgroup.procs", procs)
	m.file("cgroup"+rel+"/blkio.throttle.io_service_bytes_recursive", "8:0 Read 1\n8:0 Write 2\n")
}

// without removes files of a cgroup, as of one that lacks a controller.
func (m *machine) without(rel string, names ...string) {
	m.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(m.dir, "cgroup", rel, name)); err != nil {
			m.Fatal(err)
		}
	}
}

// unreadable has the reading of a file of a cgroup fail.
func (m *machine) unreadable(rel, name string) {
	m.Helper()
	m.without(rel, name)
	if err := os.Mkdir(filepath.Join(m.dir, "cgroup", rel, name), 0o755); err != nil {
		m.Fatal(err)
	}
}

// limit sets a cgroup's limits of memory and of swap, and what it uses of swap.
func (m *machine) limit(rel string, memory, swap, usesSwap int) {
	at := "cgroup" + rel + "/"
	if m.v2 {
		m.file(at+"memory.max", strconv.Itoa(memory))
		m.file(at+"memory.swap.max", strconv.Itoa(swap))
		m.file(at+"memory.swap.current", strconv.Itoa(usesSwap))
		return
	}
	m.file(at+"memory.limit_in_bytes", strconv.Itoa(memory))
	m.file(at+"memory.memsw.limit_in_bytes", strconv.Itoa(memory+swap))
	m.file(at+"memory.stat", fmt.Sprintf("total_inactive_file 4\ntotal_swap %d\n", usesSwap))
}

// inNamespace puts a process into a network namespace.
func (m *machine) inNamespace(pid int, name string) {
	m.Helper()
	dir := filepath.Join(m.dir, "proc", strconv.Itoa(pid), "ns")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.RemoveAll(filepath.Join(dir, "net")), os.Symlink(name, filepath.Join(dir, "net"))); err != nil {
		m.Fatal(err)
	}
}

// process is what /proc says of one.
type process struct {
	started time.Duration // after the boot
	cpu     time.Duration
	pages   int    // resident
	cgroup  string // "" for the root
}

func (m *machine) process(pid int, p process) {
	const tick = 10 * time.Millisecond
	at, cgroup := fmt.Sprintf("proc/%d/", pid), cmp.Or(p.cgroup, "/")
	m.file(at+"stat", fmt.Sprintf("%d (a daemon) S 1 1 1 0 -1 0 77 0 5 0 %d 0 0 0 20 0 1 0 %d 0 %d\n", pid, p.cpu/tick, p.started/tick, p.pages))
	m.file(at+"cgroup", "5:cpu,cpuacct:"+cgroup+"\n4:memory:"+cgroup+"\n0::"+cgroup+"\n")
}

func (m *machine) collector() *Collector {
	mount := filepath.Join(m.dir, "cgroup")
	return New(Config{
		Node: "n", RootCgroup: "/kubepods",
		Kernel: kernel.New(kernel.Config{V2: m.v2, Proc: filepath.Join(m.dir, "proc"), Sys: filepath.Join(m.dir, "sys"), Controllers: map[string]string{
			"cpu": mount, "cpuacct": mount, "memory": mount, "pids": mount, "blkio": mount,
		}}),
		Groups: func() []Group {
			m.listed.Add(1)
			if m.hold != nil {
				<-m.hold
			}
			return m.groups
		},
		Identify: func(context.Context) ([]pod.Identity, error) { m.asked.Add(1); return m.known, m.fails },
		Pods:     func() []*v1.Pod { return m.pods }, Storage: disks{m.noDisk}, Images: m.images, Disk: m.dir, Version: "v0",
	})
}

// images is the runtime's answer, or its failure.
func (m *machine) images(context.Context) (*api.RuntimeStats, error) {
	used := uint64(60)
	return &api.RuntimeStats{ImageFs: &api.FsStats{UsedBytes: &used}}, m.fails
}

// disks measure 7 bytes for each container that runs, and the node's file system unless that
// fails.
type disks struct{ fails error }

func (d disks) NodeFS() (api.FsStats, error) {
	n := uint64(50)
	return api.FsStats{UsedBytes: &n, CapacityBytes: &n, Inodes: &n, InodesFree: &n}, d.fails
}

func (disks) Pods(_ context.Context, pods []*v1.Pod) []api.PodStats {
	n := uint64(7)
	var all []api.PodStats
	for _, p := range pods {
		all = append(all, api.PodStats{
			PodRef:     api.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
			Containers: []api.ContainerStats{{Name: "main", Rootfs: &api.FsStats{UsedBytes: &n, Inodes: &n, InodesFree: &n}}},
		})
	}
	return all
}

// parse decodes an exposition as Prometheus does, strictly.
func parse(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	all, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return all
}

// value returns the series of a family with all these labels, which must be one.
func value(t *testing.T, all map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	var found []float64
	for _, m := range all[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		match := true
		for i := 0; i < len(labels); i += 2 {
			if got, ok := have[labels[i]]; !ok || got != labels[i+1] {
				match = false
			}
		}
		if match {
			found = append(found, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	if len(found) != 1 {
		t.Errorf("%s %v: %d series, want one", name, labels, len(found))
		return -1
	}
	return found[0]
}

// summary returns a Summary.
func summary(t *testing.T, c *Collector, storage bool) *api.Summary {
	t.Helper()
	s, err := c.Summary(t.Context(), storage)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// resources returns the families of Resource, and cadvisor those of Cadvisor.
func resources(t *testing.T, c *Collector) map[string]*dto.MetricFamily {
	t.Helper()
	return scrape(t, c.Resource)
}

func cadvisor(t *testing.T, c *Collector) map[string]*dto.MetricFamily {
	t.Helper()
	return scrape(t, c.Cadvisor)
}

func scrape(t *testing.T, write func(context.Context, io.Writer) error) map[string]*dto.MetricFamily {
	t.Helper()
	var out bytes.Buffer
	if err := write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

// has reports whether a family has a series of a container.
func has(all map[string]*dto.MetricFamily, name, container string) bool {
	return slices.ContainsFunc(all[name].GetMetric(), func(m *dto.Metric) bool {
		return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "container" && l.GetValue() == container })
	})
}

// each runs a test on both versions of cgroups.
func each(t *testing.T, f func(t *testing.T, v2 bool)) {
	t.Run("v1", func(t *testing.T) { f(t, false) })
	t.Run("v2", func(t *testing.T) { f(t, true) })
}
