package stats

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/internal/pod"
)

const main1 = "/kubepods/podu-1/main1"

// another adds a pod with the containers of these IDs, which have their IDs as names, and no
// status yet. Each has a process.
func (m *machine) another(uid pod.UID, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "name-of-" + string(uid), Namespace: "shop", UID: uid}}
	m.pods = append(m.pods, p)
	at := "/kubepods/pod" + string(uid)
	m.add(Group{Path: at, Pod: uid}, 0, 1e9, 50)
	sandbox := "box-" + string(uid)
	m.known = append(m.known, pod.Identity{ID: sandbox, UID: uid, Pod: p.Name, Namespace: "shop"})
	m.add(Group{Path: at + "/" + sandbox, Pod: uid, ID: sandbox}, 0, 1e9, 10)
	for _, id := range containers {
		m.container(uid, id, id)
	}
	return p
}

// container adds a container with a process to a pod.
func (m *machine) container(uid pod.UID, id, name string) {
	m.known = append(m.known, pod.Identity{ID: id, UID: uid, Pod: "name-of-" + string(uid), Namespace: "shop", Container: name})
	m.add(Group{Path: "/kubepods/pod" + string(uid) + "/" + id, Pod: uid, ID: id}, os.Getppid(), 1e9, 20)
}

func podsOf(s *api.Summary) []string {
	uids := []string{}
	for _, p := range s.Pods {
		uids = append(uids, p.PodRef.UID)
	}
	return uids
}

func TestPodsOfTheSummaryAreSortedAndRunSomething(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		m.another("u-2", "two")
		m.another("u-0", "zero")
		m.another("u-3") // its containers have not been started
		gone := m.another("u-4", "four")
		gone.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "four", ContainerID: "x://four", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
		if got, want := podsOf(summary(t, m.collector(), false)), []string{"u-0", "u-1", "u-2"}; !slices.Equal(got, want) {
			t.Errorf("got the pods %q, want %q", got, want)
		}
	})
}

func TestAPodBetweenTwoContainersIsShownWithItsNetwork(t *testing.T) {
	m := newMachine(t, true)
	m.pods[0].Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	s := summary(t, m.collector(), false)
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 0 || *s.Pods[0].Network.RxBytes != 500 {
		t.Errorf("got %+v, want the pod without containers", s.Pods)
	}
}

// A pod's cgroup may have been removed when those of its containers are read.
func TestAContainerThatOutlivesItsPodsCgroupIsInNoOtherPod(t *testing.T) {
	m := newMachine(t, true)
	m.another("u-2", "two")
	m.without("/kubepods/podu-2", "")
	m.files("/kubepods/podu-2/two", os.Getppid(), 1e9, 20)
	m.groups = slices.DeleteFunc(m.groups, func(g Group) bool { return g.Path == "/kubepods/podu-2" })
	s := summary(t, m.collector(), false)
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || *s.Pods[0].ProcessStats.ProcessCount != 2 {
		t.Errorf("got %+v, want web with its own container alone", s.Pods)
	}
}

func TestAPodWithoutACgroupHasItsDisksAlone(t *testing.T) {
	m := newMachine(t, true)
	m.pods = append(m.pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "shop", UID: "u-9"}})
	s := summary(t, m.collector(), true)
	if got := podsOf(s); !slices.Equal(got, []string{"u-1", "u-9"}) {
		t.Fatalf("got the pods %q", got)
	}
	if p := s.Pods[1]; p.CPU != nil || p.Memory != nil || p.ProcessStats != nil || *p.Containers[0].Rootfs.UsedBytes != 7 || p.Containers[0].CPU != nil {
		t.Errorf("got %+v, want its disks alone", p)
	}
	if p := s.Pods[0]; *p.CPU.UsageCoreNanoSeconds != 8e9 || *p.Containers[0].CPU.UsageCoreNanoSeconds != 25e8 {
		t.Errorf("got %+v, want the other as always", p)
	}
}

// TestWhichContainersRun: by their status, or by their processes while they are in none. A
// container with an init system has its processes in cgroups of its own.
func TestWhichContainersRun(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		p := m.another("u-2", "two")
		for name, tt := range map[string]struct {
			status    *v1.ContainerState // nil for none yet
			processes int
			runs      bool
		}{
			"no status, processes":    {nil, os.Getppid(), true},
			"no status, no processes": {nil, 0, false},
			"running, processes":      {&running, os.Getppid(), true},
			"running, no processes":   {&running, 0, true},
			"ended, processes":        {&ended, os.Getppid(), false},
			"ended, no processes":     {&ended, 0, false},
		} {
			m.files("/kubepods/podu-2/two", tt.processes, 1e9, 20)
			p.Status.ContainerStatuses = nil
			if tt.status != nil {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "two", ContainerID: "x://two", State: *tt.status}}
			}
			if got := slices.Contains(podsOf(summary(t, m.collector(), false)), "u-2"); got != tt.runs {
				t.Errorf("%s: shown: got %t, want %t", name, got, tt.runs)
			}
		}
	})
}

// The status of a container that was restarted comes later than its cgroup.
func TestOfTwoContainersOfOneNameTheYoungerIsShown(t *testing.T) {
	for name, order := range map[string][]string{"the older first": {"older", "younger"}, "the younger first": {"younger", "older"}} {
		m := newMachine(t, true)
		p := m.another("u-2")
		for _, id := range order {
			m.container("u-2", id, "app")
		}
		m.files("/kubepods/podu-2/younger", os.Getppid(), 3e9, 20)
		m.files("/kubepods/podu-2/older", os.Getppid(), 9e9, 20)
		started := metav1.NewTime(time.Unix(1_700_000_000, 0))
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "x://older", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}}}
		m.container("u-2", "beside", "sidecar")
		s := summary(t, m.collector(), false)
		got := map[string]time.Duration{}
		for _, k := range s.Pods[1].Containers {
			got[k.Name] = time.Duration(*k.CPU.UsageCoreNanoSeconds)
		}
		if len(s.Pods[1].Containers) != 2 || got["app"] != 3*time.Second || got["sidecar"] != time.Second {
			t.Errorf("%s: got %v, want the younger with 3s, and the sidecar", name, got)
		}
	}
}

func TestAvailableIsWhatIsLeftOfALimit(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		for _, tt := range []struct {
			memory, swap, usesSwap   int
			available, availableSwap uint64
		}{
			{300, 50, 17, 204, 33}, // of memory 96 are in use
			{90, 10, 17, 0, 0},     // more than the limits that were lowered
			{96, 17, 17, 0, 0},
		} {
			m.limit(main1, tt.memory, tt.swap, tt.usesSwap)
			c := m.collector()
			k := summary(t, c, false).Pods[0].Containers[0]
			if *k.Memory.AvailableBytes != tt.available || *k.Swap.SwapUsageBytes != uint64(tt.usesSwap) || *k.Swap.SwapAvailableBytes != tt.availableSwap {
				t.Errorf("%+v: got %d bytes of memory and %d of swap available, %d of swap in use", tt, *k.Memory.AvailableBytes, *k.Swap.SwapAvailableBytes, *k.Swap.SwapUsageBytes)
			}
			limit := max(tt.swap, tt.usesSwap)
			if got := value(t, resources(t, c), "container_swap_limit_bytes", "container", "main"); got != float64(limit) {
				t.Errorf("%+v: container_swap_limit_bytes: got %v, want %d", tt, got, limit)
			}
		}
	})
}

func TestAContainerWithoutAControllerLacksWhatItCounts(t *testing.T) {
	memory := []string{"memory.stat", "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.current", "memory.max"}
	for name, tt := range map[string]struct {
		files       []string
		cpu, memory bool
	}{
		"all":       {nil, true, true},
		"no CPU":    {[]string{"cpuacct.usage", "cpu.stat"}, false, true},
		"no memory": {memory, true, false},
	} {
		each(t, func(t *testing.T, v2 bool) {
			m := newMachine(t, v2)
			m.without(main1, tt.files...)
			c := m.collector()
			k := summary(t, c, false).Pods[0].Containers[0]
			if (k.CPU != nil) != tt.cpu || (k.Memory != nil) != tt.memory || (k.Swap != nil) != tt.memory {
				t.Errorf("%s: got %+v", name, k)
			}
			all := resources(t, c)
			for family, want := range map[string]bool{
				"container_cpu_usage_seconds_total": tt.cpu, "container_memory_working_set_bytes": tt.memory, "container_swap_usage_bytes": tt.memory,
				"container_start_time_seconds": true,
			} {
				if got := has(all, family, "main"); got != want {
					t.Errorf("%s: %s: there: got %t, want %t", name, family, got, want)
				}
			}
			value(t, all, "pod_memory_working_set_bytes", "pod", "web")
		})
	}
}

func TestPressureIsShownWhereTheKernelHasIt(t *testing.T) {
	pressure := func(some, full int) string {
		return fmt.Sprintf("some avg10=1.5 avg60=2.5 avg300=3.5 total=%d\nfull avg10=0.5 avg60=0.25 avg300=0.125 total=%d\n", some, full)
	}
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		for i, kind := range []string{"cpu", "memory", "io"} {
			m.file("proc/pressure/"+kind, pressure(100+i, 200+i))
			m.file("cgroup"+main1+"/"+kind+".pressure", pressure(300+i, 400+i))
			m.file("cgroup/kubepods/"+kind+".pressure", pressure(500+i, 600+i))
			m.file("cgroup/kubepods/podu-1/"+kind+".pressure", pressure(700+i, 800+i))
		}
		s := summary(t, m.collector(), true)
		psi := func(what string, got *api.PSIStats, some uint64) {
			t.Helper()
			want := api.PSIStats{Some: api.PSIData{Total: some, Avg10: 1.5, Avg60: 2.5, Avg300: 3.5}, Full: api.PSIData{Total: some + 100, Avg10: 0.5, Avg60: 0.25, Avg300: 0.125}}
			if got == nil || *got != want {
				t.Errorf("%s: got %+v, want %+v", what, got, want)
			}
		}
		psi("the node's CPU", s.Node.CPU.PSI, 100)
		psi("the node's memory", s.Node.Memory.PSI, 101)
		psi("the node's devices", s.Node.IO.PSI, 102)
		all, p := systemContainer(s, "pods"), s.Pods[0]
		if !v2 { // cgroups of v1 have none
			if all.CPU.PSI != nil || all.IO != nil || p.Memory.PSI != nil || p.IO != nil || p.Containers[0].IO != nil {
				t.Errorf("got %+v, %+v", all, p)
			}
			return
		}
		psi("the CPU of all pods", all.CPU.PSI, 500)
		psi("the devices of all pods", all.IO.PSI, 502)
		psi("the pod's memory", p.Memory.PSI, 701)
		psi("the pod's devices", p.IO.PSI, 702)
		psi("the container's CPU", p.Containers[0].CPU.PSI, 300)
		psi("the container's devices", p.Containers[0].IO.PSI, 302)
	})
}

// The kernel counts how often a limit was hit, which mostly frees some page cache, beside how
// often it killed a process for it.
func TestAMemoryLimitThatIsHitIsNoOOMKill(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		for _, kills := range []float64{0, 2} {
			m.file("cgroup"+main1+"/memory.events", fmt.Sprintf("low 0\nhigh 0\nmax 9\noom 5\noom_kill %v\n", kills))
			m.file("cgroup"+main1+"/memory.oom_control", fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %v\n", kills))
			m.file("cgroup"+main1+"/memory.failcnt", "9\n")
			all := cadvisor(t, m.collector())
			if got := value(t, all, "container_oom_events_total", "container", "main"); got != kills {
				t.Errorf("container_oom_events_total: got %v, want %v", got, kills)
			}
			if got := value(t, all, "container_memory_failcnt", "container", "main"); got != 9 {
				t.Errorf("container_memory_failcnt: got %v, want 9", got)
			}
		}
	})
}

func TestWhatWasReceivedIsNotTakenForWhatWasSent(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		m.file(fmt.Sprintf("proc/%d/net/dev", os.Getppid()), "a\nb\neth0: 101 102 103 104 0 0 0 0 201 202 203 204 0 0 0 0\n")
		m.file("proc/1/net/dev", "a\nb\neth0: 301 302 303 304 0 0 0 0 401 402 403 404 0 0 0 0\n")
		c := m.collector()
		s := summary(t, c, true)
		for what, n := range map[string]*api.NetworkStats{"the pod": s.Pods[0].Network, "the node": s.Node.Network} {
			first := map[string]uint64{"the pod": 100, "the node": 300}[what]
			for where, one := range map[string]api.InterfaceStats{"in all": n.InterfaceStats, "the interface": n.Interfaces[0]} {
				got, want := [4]uint64{*one.RxBytes, *one.RxErrors, *one.TxBytes, *one.TxErrors}, [4]uint64{first + 1, first + 3, first + 101, first + 103}
				if got != want {
					t.Errorf("%s, %s: got received bytes and errors, sent bytes and errors %d, want %d", what, where, got, want)
				}
			}
		}
		all := cadvisor(t, c)
		for family, want := range map[string]float64{
			"receive_bytes": 101, "receive_packets": 102, "receive_errors": 103, "receive_packets_dropped": 104,
			"transmit_bytes": 201, "transmit_packets": 202, "transmit_errors": 203, "transmit_packets_dropped": 204,
		} {
			if got := value(t, all, "container_network_"+family+"_total", "name", "box"); got != want {
				t.Errorf("%s: got %v, want %v", family, got, want)
			}
		}
	})
}

func TestAPodOnTheNodesNetworkHasNoneOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		for namespace, own := range map[string]bool{"net:[1]": false, "net:[2]": true} {
			m.inNamespace(os.Getpid(), "net:[1]")
			m.inNamespace(os.Getppid(), namespace)
			c := m.collector()
			if n := summary(t, c, false).Pods[0].Network; (n != nil) != own {
				t.Errorf("in %s: got the network %+v, want one: %t", namespace, n, own)
			}
			series, want := len(cadvisor(t, c)["container_network_receive_bytes_total"].Metric), 1
			if own {
				want = 2
			}
			if series != want {
				t.Errorf("in %s: %d have a network, want %d", namespace, series, want)
			}
		}
	})
}

// A sandbox whose process has ended has no network, though another program has its PID by now.
func TestARecycledPIDIsNotTakenForASandboxsProcess(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		const box = "/kubepods/podu-1/box"
		first := os.Getppid()
		dev := func(pid, received int) {
			m.file("proc/"+strconv.Itoa(pid)+"/net/dev", fmt.Sprintf("a\nb\neth0: %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", received))
		}
		c := m.collector()
		if n := summary(t, c, false).Pods[0].Network; n == nil || *n.RxBytes != 500 {
			t.Fatalf("got %+v", n)
		}
		dev(first, 7777)
		m.files(box, 0, 1e9, 10)
		if n := summary(t, c, false).Pods[0].Network; n != nil {
			t.Errorf("its process has ended: got the %d bytes of another", *n.RxBytes)
		}
		if all := cadvisor(t, c)["container_network_receive_bytes_total"].Metric; len(all) != 1 {
			t.Errorf("its process has ended: got %v, want the node's network alone", all)
		}
		dev(4712, 12)
		m.files(box, 4712, 1e9, 10)
		if n := summary(t, c, false).Pods[0].Network; n == nil || *n.RxBytes != 12 {
			t.Errorf("it has a new process: got %+v, want its 12 bytes", n)
		}
	})
}
