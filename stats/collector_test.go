package stats

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

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
		for name, f := range all { // a counter that is not one cannot be taken for a rate
			kind := dto.MetricType_GAUGE
			if strings.HasSuffix(name, "_total") {
				kind = dto.MetricType_COUNTER
			}
			if f.GetType() != kind || f.GetHelp() == "" {
				t.Errorf("%s: got %s %q, want %s", name, f.GetType(), f.GetHelp(), kind)
			}
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
		for name, stamped := range map[string]bool{
			"container_memory_usage_bytes": true, "container_cpu_usage_seconds_total": true,
			"container_spec_cpu_quota": false, "container_spec_memory_limit_bytes": false, "container_start_time_seconds": false,
		} {
			for _, one := range all[name].Metric {
				if got := one.TimestampMs != nil; got != stamped {
					t.Errorf("%s has timestamps: got %t, want %t", name, got, stamped)
				}
			}
		}
		if v := value(t, all, "machine_cpu_cores"); v != 1 {
			t.Errorf("cores: got %v", v)
		}
		value(t, all, "cadvisor_version_info")
	})
}

// A new cgroup counts from 0, and a counter of a container does not.
func TestOOMKillsThatEndedAContainerStayCounted(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		m.file("cgroup/kubepods/podu-1/main1/memory.events", "oom_kill 2\n")
		m.file("cgroup/kubepods/podu-1/main1/memory.oom_control", "oom_kill 2\n")
		c := m.collector()
		c.cfg.PastOOMKills = func(uid pod.UID, container, id string) uint64 {
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

// TestTheRuntimeIsAskedForWhatIsNewOnly, and a runtime that does not answer costs what is
// new, not the rest.
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
	if v := value(t, all, "container_scrape_error"); v != 0 || len(all["container_last_seen"].Metric) != 4 || len(c.identities.byID) != 2 || len(c.identities.unknown) != 0 || len(c.identities.pods) != 1 || len(c.rates.byName) > 5 {
		t.Errorf("error %v, %d cgroups, %d names, %d rates", v, len(all["container_last_seen"].Metric), len(c.identities.byID), len(c.rates.byName))
	}
	m.groups = m.groups[:1]
	scrape()
	if len(c.identities.byID)+len(c.identities.pods) != 0 {
		t.Errorf("without pods: got %d names of containers and %d of pods", len(c.identities.byID), len(c.identities.pods))
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

// TestAReadingOfAllServesWhoWantsLess, and not the other way round.
func TestAReadingOfAllServesWhoWantsLess(t *testing.T) {
	m := newMachine(t, true)
	for name, tt := range map[string]struct {
		asks []string
		want int32 // readings
	}{
		"more first": {[]string{"cadvisor", "summary", "resource"}, 1},
		"less first": {[]string{"summary", "cadvisor"}, 2},
		"the same":   {[]string{"summary", "resource", "summary"}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			m.hold = make(chan struct{})
			m.listed.Store(0)
			c := m.collector()
			for _, what := range tt.asks {
				go func() {
					var err error
					switch what {
					case "summary":
						_, err = c.Summary(t.Context(), false)
					case "resource":
						err = c.Resource(t.Context(), io.Discard)
					default:
						var out bytes.Buffer
						err = c.Cadvisor(t.Context(), &out)
						value(t, parse(t, out.Bytes()), "container_spec_cpu_quota", "container", "main")
					}
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}()
				synctest.Wait()
			}
			close(m.hold)
			synctest.Wait()
			if got := m.listed.Load(); got != tt.want {
				t.Errorf("%s: got %d readings, want %d", name, got, tt.want)
			}
		})
	}
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
			if got := c.rates.byName[main].base.usage; got != want {
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
		"5 minutes old":       {300, []ask{{0, 150, 0.5}}},
		"second":              {1e6, []ask{{0, 500, -1}, {2, 501, 0.5}}},
		"too close":           {1e6, []ask{{0, 500, -1}, {0.05, 500.01, -1}, {0.1, 500.05, 0.5}, {1, 501, 1}}},
		"each minute":         {1e6, []ask{{0, 0, -1}, {60, 60, 1}, {120, 60, 0}, {180, 90, 0.5}}},
		// often: over ten seconds or more, not since the last request
		"each second": {1e6, []ask{{0, 0, -1}, {9, 9, 1}, {11, 11, 1}, {12, 23, 23. / 12}, {21, 23, 12. / 10}, {22, 23, 12. / 11}}},
		"began again": {1e6, []ask{{0, 500, -1}, {10, 3, -1}, {20, 13, 1}}},
		"long":        {1e6, []ask{{0, 0, -1}, {300, 150, 0.5}}},
		"too long":    {1e6, []ask{{0, 0, -1}, {301, 301, -1}, {311, 311, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rates{byName: map[string]*rate{}}
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
	w := newMetricsWriter(&out)
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
