package stats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func (m *machine) collector() *Collector {
	mount := filepath.Join(m.dir, "cgroup")
	return New(Config{
		Node: "n", Root: "/kubepods",
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
		Pods:     func() []*v1.Pod { return m.pods }, Storage: disks{m.pods}, Images: m.images, Disk: m.dir, Version: "v0",
	})
}

// images is the runtime's answer, or its failure.
func (m *machine) images(context.Context) (*api.RuntimeStats, error) {
	used := uint64(60)
	return &api.RuntimeStats{ImageFs: &api.FsStats{UsedBytes: &used}}, m.fails
}

// disks measure 7 bytes for each container that runs.
type disks struct{ pods []*v1.Pod }

func (disks) NodeFS() (api.FsStats, error) {
	n := uint64(50)
	return api.FsStats{UsedBytes: &n, CapacityBytes: &n, Inodes: &n, InodesFree: &n}, nil
}

func (d disks) Pods(_ context.Context, pods []*v1.Pod) []api.PodStats {
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

// each runs a test on both versions of cgroups.
func each(t *testing.T, f func(t *testing.T, v2 bool)) {
	t.Run("v1", func(t *testing.T) { f(t, false) })
	t.Run("v2", func(t *testing.T) { f(t, true) })
}

func TestTheSummaryHasWhatPodsUse(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		c := newMachine(t, v2).collector()
		s, err := c.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if *s.Node.CPU.UsageCoreNanoSeconds != 20e9 || *s.Node.Memory.AvailableBytes != 2000<<10-996 || s.Node.Swap == nil || *s.Node.Swap.SwapAvailableBytes != 0 {
			t.Errorf("node: got %+v %+v", s.Node.CPU, s.Node.Memory)
		}
		if n := s.Node.Network; n.Name != "eth0" || *n.RxBytes != 9000 || len(n.Interfaces) != 1 {
			t.Errorf("the node's network: got %+v", n)
		}
		if r := s.Node.Rlimit; *r.MaxPID != 1000 || *r.NumOfRunningProcesses != 77 || *s.Node.Fs.UsedBytes != 50 {
			t.Errorf("rlimit: got %+v", r)
		}
		if *s.Node.Runtime.ImageFs.UsedBytes != 60 {
			t.Errorf("images: got %+v", s.Node.Runtime.ImageFs)
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			t.Fatalf("got %+v", s.Pods)
		}
		p := s.Pods[0]
		if p.PodRef != (api.PodReference{Name: "web", Namespace: "shop", UID: "u-1"}) || *p.CPU.UsageCoreNanoSeconds != 8e9 || *p.Memory.UsageBytes != 200 || *p.Memory.WorkingSetBytes != 196 {
			t.Errorf("pod: got %+v %+v", p.PodRef, p.CPU)
		}
		if p.Memory.AvailableBytes != nil || p.Swap == nil || p.Swap.SwapAvailableBytes != nil {
			t.Error("without a limit nothing is available of it")
		}
		if *p.ProcessStats.ProcessCount != 2 || p.Network.Name != "eth0" || *p.Network.RxBytes != 500 || *p.Network.RxErrors != 1 || *p.Network.TxBytes != 600 || *p.Network.TxErrors != 3 {
			t.Errorf("got %d processes, network %+v", *p.ProcessStats.ProcessCount, p.Network)
		}
		if k := p.Containers[0]; k.Name != "main" || *k.CPU.UsageCoreNanoSeconds != 25e8 || *k.Memory.WorkingSetBytes != 96 || *k.Rootfs.UsedBytes != 7 {
			t.Errorf("container: got %+v", k)
		}
		var names []string
		for _, k := range s.Node.SystemContainers {
			names = append(names, k.Name)
		}
		if !slices.Contains(names, "pods") {
			t.Errorf("system containers: got %v", names)
		}

		s, err = c.Summary(t.Context(), false)
		if err != nil || s.Node.Fs != nil || s.Node.Runtime != nil || s.Node.Network != nil || len(s.Pods) != 1 || s.Pods[0].Containers[0].Rootfs != nil {
			t.Errorf("only CPU and memory: got %+v, %v", s, err)
		}
		if k := s.Pods[0].Containers[0]; k.StartTime.Unix() != 1_700_000_000 || *k.CPU.UsageCoreNanoSeconds != 25e8 {
			t.Errorf("only CPU and memory: got %+v", k)
		}
	})
}

func TestTheCgroupOfTheSystemIsMisc(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		misc := func(c *Collector, storage bool) *api.ContainerStats {
			s, err := c.Summary(t.Context(), storage)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(s.Node.SystemContainers, func(k api.ContainerStats) bool { return k.Name == "misc" })
			if i < 0 {
				return nil
			}
			return &s.Node.SystemContainers[i]
		}
		c := m.collector()
		c.cfg.System = "/system"
		if got := misc(c, true); got != nil {
			t.Errorf("without such a cgroup: got %+v", got)
		}
		m.files("/system", 0, 4e9, 70)
		for _, storage := range []bool{true, false} {
			if got := misc(c, storage); got == nil || *got.CPU.UsageCoreNanoSeconds != 4e9 || *got.Memory.WorkingSetBytes != 66 || got.StartTime.IsZero() || got.Rootfs != nil {
				t.Errorf("got %+v", got)
			}
		}
		if got := misc(m.collector(), true); got != nil {
			t.Errorf("without systemCgroups: got %+v", got)
		}
	})
}

func TestResourceMetricsHaveTheKubeletsNames(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		var out bytes.Buffer
		if err := newMachine(t, v2).collector().Resource(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		all := parse(t, out.Bytes())
		// pkg/kubelet/metrics/collectors/resource_metrics.go; no limit of swap, no series
		want := strings.Fields(`container_cpu_usage_seconds_total container_memory_working_set_bytes container_start_time_seconds
			container_swap_usage_bytes node_cpu_usage_seconds_total node_memory_working_set_bytes node_swap_usage_bytes pod_cpu_usage_seconds_total
			pod_memory_working_set_bytes pod_swap_usage_bytes resource_scrape_error scrape_error`)
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		of := []string{"container", "main", "namespace", "shop", "pod", "web"}
		if v := value(t, all, "container_cpu_usage_seconds_total", of...); v != 2.5 {
			t.Errorf("got %v s", v)
		}
		if v := value(t, all, "container_start_time_seconds", of...); v != 1_700_000_000 {
			t.Errorf("started at %v", v)
		}
		if v := value(t, all, "pod_memory_working_set_bytes", "namespace", "shop", "pod", "web"); v != 196 {
			t.Errorf("got %v bytes", v)
		}
		if all["container_cpu_usage_seconds_total"].Metric[0].GetTimestampMs() == 0 || all["container_start_time_seconds"].Metric[0].TimestampMs != nil {
			t.Error("measurements have timestamps, the start has none")
		}
		if len(all["container_cpu_usage_seconds_total"].Metric) != 1 {
			t.Error("a container that has ended, or a sandbox, is shown")
		}
	})
}

func TestCadvisorMetricsOfEachCgroup(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		var out bytes.Buffer
		if err := newMachine(t, v2).collector().Cadvisor(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		all := parse(t, out.Bytes())
		for _, id := range []string{"/", "/kubepods", "/kubepods/podu-1", "/kubepods/podu-1/box", "/kubepods/podu-1/main1"} {
			value(t, all, "container_memory_working_set_bytes", "id", id)
		}
		main := []string{"id", "/kubepods/podu-1/main1", "container", "main", "image", "docker.io/library/web:1", "name", "main1", "namespace", "shop", "pod", "web"}
		if v := value(t, all, "container_cpu_usage_seconds_total", append(main, "cpu", "total")...); v != 2.5 {
			t.Errorf("got %v s", v)
		}
		if v := value(t, all, "container_spec_cpu_quota", main...); v != 50000 {
			t.Errorf("quota: got %v", v)
		}
		if v := value(t, all, "container_fs_usage_bytes", main...); v != 7 {
			t.Errorf("layer: got %v", v)
		}
		for _, name := range []string{"container_fs_inodes_total", "container_fs_inodes_free"} { // a layer has none of its own
			if n := len(all[name].Metric); n != 1 {
				t.Errorf("%s: %d series, want the node's alone", name, n)
			}
			value(t, all, name, "id", "/")
		}
		if v := value(t, all, "container_fs_writes_bytes_total", append(main, "device", "8:0")...); v != 2 {
			t.Errorf("written: got %v", v)
		}
		box := []string{"id", "/kubepods/podu-1/box", "container", "", "image", "pause:1", "name", "box", "pod", "web", "interface", "eth0"}
		if v := value(t, all, "container_network_transmit_packets_dropped_total", box...); v != 4 {
			t.Errorf("dropped: got %v", v)
		}
		if n := len(all["container_network_receive_bytes_total"].Metric); n != 2 {
			t.Errorf("%d have a network, want the node and the sandbox", n)
		}
		value(t, all, "container_memory_failures_total", append(main, "failure_type", "pgmajfault", "scope", "hierarchy")...)
		value(t, all, "container_cpu_usage_seconds_total", "id", "/kubepods/podu-1", "pod", "web", "container", "", "image", "")
		if v := value(t, all, "machine_cpu_cores"); v != 1 {
			t.Errorf("cores: got %v", v)
		}
		value(t, all, "cadvisor_version_info")
	})
}

// TestTheRuntimeIsAskedForWhatIsNewOnly, and a runtime that does not answer costs what is
// new, not the rest.
// A new cgroup counts from 0, and a counter of a container does not.
func TestOOMKillsThatEndedAContainerStayCounted(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		m.file("cgroup/kubepods/podu-1/main1/memory.events", "oom_kill 2\n")
		m.file("cgroup/kubepods/podu-1/main1/memory.oom_control", "oom_kill 2\n")
		c := m.collector()
		c.cfg.PastKills = func(uid pod.UID, container, id string) uint64 {
			if uid == "u-1" && container == "main" && id == "main1" {
				return 3
			}
			return 0
		}
		var out bytes.Buffer
		if err := c.Cadvisor(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if got := value(t, parse(t, out.Bytes()), "container_oom_events_total", "container", "main"); got != 5 {
			t.Errorf("got %v kills, want 5", got)
		}
	})
}

func TestTheRuntimeIsAskedForWhatIsNewOnly(t *testing.T) {
	m := newMachine(t, true)
	c := m.collector()
	scrape := func() map[string]*dto.MetricFamily {
		var out bytes.Buffer
		if err := c.Cadvisor(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		return parse(t, out.Bytes())
	}
	scrape()
	scrape()
	if n := m.asked.Load(); n != 1 {
		t.Errorf("asked %d times for the same containers", n)
	}
	m.add(Group{Path: "/kubepods/podu-1/new1", Pod: "u-1", ID: "new1"}, 1, 1, 1)
	m.fails = errors.New("no runtime")
	all := scrape()
	value(t, all, "container_last_seen", "container", "main")
	if v := value(t, all, "container_scrape_error"); v != 1 || len(all["container_last_seen"].Metric) != 6 {
		t.Errorf("error %v, %d cgroups, want all but the new one", v, len(all["container_last_seen"].Metric))
	}
	if s, err := c.Summary(t.Context(), true); err != nil || len(s.Pods) != 1 || s.Node.Fs == nil || s.Node.Runtime != nil {
		t.Errorf("a summary without the runtime: got %+v, %v, want all but its file systems", s, err)
	}
	m.fails = nil
	m.known = append(m.known, pod.Identity{ID: "new1", UID: "u-1", Pod: "web", Namespace: "shop", Container: "new"})
	value(t, scrape(), "container_last_seen", "container", "new")
	// What the runtime does not know is asked for once in a while, not at each scrape.
	m.add(Group{Path: "/kubepods/podu-1/stray", Pod: "u-1", ID: "stray"}, 1, 1, 1)
	before := m.asked.Load()
	for range 5 {
		scrape()
	}
	if n := m.asked.Load() - before; n != 1 {
		t.Errorf("asked %d times for a stray", n)
	}
	// What is gone is forgotten, and no error.
	m.groups = m.groups[:4]
	if err := os.RemoveAll(filepath.Join(m.dir, "cgroup/kubepods/podu-1/main1")); err != nil {
		t.Fatal(err)
	}
	all = scrape()
	if v := value(t, all, "container_scrape_error"); v != 0 || len(all["container_last_seen"].Metric) != 4 || len(c.names.byID) != 2 || len(c.names.unknown) != 0 || len(c.rates.of) > 5 {
		t.Errorf("error %v, %d cgroups, %d names, %d rates", v, len(all["container_last_seen"].Metric), len(c.names.byID), len(c.rates.of))
	}
}

// TestRequestsAtOnceShareAReading: however many clients there are; and a client that leaves
// harms nobody.
func TestRequestsAtOnceShareAReading(t *testing.T) {
	m := newMachine(t, true)
	synctest.Test(t, func(t *testing.T) {
		m.hold = make(chan struct{})
		c := m.collector()
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Summary(gone, true); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: got %v", err)
		}
		var failed atomic.Int32
		for range 20 {
			go func() {
				if s, err := c.Summary(t.Context(), false); err != nil || len(s.Pods) != 1 {
					failed.Add(1)
				}
			}()
			go func() {
				if err := c.Cadvisor(t.Context(), io.Discard); err != nil {
					failed.Add(1)
				}
			}()
		}
		synctest.Wait()
		if n := m.listed.Load(); n != 1 {
			t.Errorf("%d readings at once", n)
		}
		close(m.hold)
		synctest.Wait()
		if n := m.listed.Load(); n != 2 || failed.Load() != 0 || len(c.flights) != 0 {
			t.Errorf("%d readings, want one of each kind; %d failed", n, failed.Load())
		}
	})
}

// TestARateDoesNotBeginAtACgroupThatIsNewToTheKernelsMemoryOnly: its directory seems to be
// made as it is read, and what it has used in its life was not used since.
func TestARateDoesNotBeginAtACgroupThatIsNewToTheKernelsMemoryOnly(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		const main = "/kubepods/podu-1/main1"
		for age, want := range map[time.Duration]uint64{0: 25e8, time.Minute: 0} {
			m := newMachine(t, v2)
			c := m.collector()
			dir := filepath.Join(m.dir, "cgroup", main)
			at := time.Now().Add(-age)
			if err := os.Chtimes(dir, at, at); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Summary(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if got := c.rates.of[main].base.usage; got != want {
				t.Errorf("%v old: its rate begins at %d, want %d", age, got, want)
			}
		}
	})
}

func TestRatesAreOfTheTimeSinceAnEarlierRequest(t *testing.T) {
	start := time.Unix(1000, 0)
	type ask struct{ at, used, want float64 } // seconds, of CPU, cores; -1 for none
	for name, tt := range map[string]struct {
		born float64 // seconds before start
		asks []ask
	}{
		"first, long running": {1e6, []ask{{0, 500, -1}}},
		"first, just started": {10, []ask{{0, 5, 0.5}}},
		"second":              {1e6, []ask{{0, 500, -1}, {2, 501, 0.5}}},
		"too close":           {1e6, []ask{{0, 500, -1}, {0.05, 500.01, -1}, {1, 501, 1}}},
		"each minute":         {1e6, []ask{{0, 0, -1}, {60, 60, 1}, {120, 60, 0}, {180, 90, 0.5}}},
		// often: over ten seconds or more, not since the last request
		"each second": {1e6, []ask{{0, 0, -1}, {9, 9, 1}, {11, 11, 1}, {12, 23, 23. / 12}, {21, 23, 12. / 10}, {22, 23, 12. / 11}}},
		"began again": {1e6, []ask{{0, 500, -1}, {10, 3, -1}, {20, 13, 1}}},
		"too long":    {1e6, []ask{{0, 0, -1}, {301, 301, -1}, {311, 311, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rates{of: map[string]*rate{}}
			for i, a := range tt.asks {
				at := start.Add(time.Duration(a.at * 1e9))
				got := r.observe("x", point{at, uint64(a.used * 1e9)}, start.Add(-time.Duration(tt.born*1e9)))
				if (got == nil) != (a.want < 0) || got != nil && (float64(*got)/1e9 > a.want+0.001 || float64(*got)/1e9 < a.want-0.001) {
					shown := -1.0
					if got != nil {
						shown = float64(*got) / 1e9
					}
					t.Errorf("request %d: got %v, want %v", i, shown, a.want)
				}
			}
		})
	}
}

func TestTextIsEscaped(t *testing.T) {
	var out bytes.Buffer
	w := newText(&out)
	w.family("a", gauge, "help")
	w.series("a", 1.5, time.UnixMilli(12), label("x", "q\"b\\n\nl", "y", ""), "", label("z", "ü"))
	w.series("a", 1<<60, time.Time{})
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	m := parse(t, out.Bytes())["a"].Metric
	if len(m) != 2 || m[0].Label[0].GetValue() != "q\"b\\n\nl" || m[0].GetTimestampMs() != 12 || m[0].Gauge.GetValue() != 1.5 || m[1].Gauge.GetValue() != 1<<60 {
		t.Errorf("got %v from %s", m, out.String())
	}
}
