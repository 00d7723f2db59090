package stats

import (
	"math"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// runtimePID is of the runtime, as long as it is not restarted.
const runtimePID = 4711

// systemContainer returns one of the summary, nil if it is not in it.
func systemContainer(s *api.Summary, name string) *api.ContainerStats {
	i := slices.IndexFunc(s.Node.SystemContainers, func(k api.ContainerStats) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Node.SystemContainers[i]
}

func systemContainers(s *api.Summary) []string {
	names := []string{}
	for _, k := range s.Node.SystemContainers {
		names = append(names, k.Name)
	}
	return names
}

// withRuntime returns a Collector of a machine with a runtime, whose process pid returns.
func (m *machine) withRuntime(pid func() int) *Collector {
	c := m.collector()
	c.cfg.RuntimePID = pid
	return c
}

func TestADaemonIsMeasuredByACgroupOfItsOwnOrElseByItsProcess(t *testing.T) {
	page := os.Getpagesize()
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		m.files("/podd", 0, 40e9, 400)
		m.files("/containerd", 0, 50e9, 500)
		for name, tt := range map[string]struct {
			podd, runtime string // their cgroups
			pid           int    // the runtime's
			cpu           map[string]time.Duration
			memory        map[string]int // working sets
		}{
			"services": {"/podd", "/containerd", runtimePID,
				map[string]time.Duration{"kubelet": 40 * time.Second, "runtime": 50 * time.Second}, map[string]int{"kubelet": 396, "runtime": 496}},
			"one cgroup for both": {"/podd", "/podd", runtimePID,
				map[string]time.Duration{"kubelet": 4 * time.Second, "runtime": 5 * time.Second}, map[string]int{"kubelet": 40 * page, "runtime": 50 * page}},
			"the root": {"", "", runtimePID,
				map[string]time.Duration{"kubelet": 4 * time.Second, "runtime": 5 * time.Second}, map[string]int{"kubelet": 40 * page, "runtime": 50 * page}},
			"one in the root": {"", "/containerd", runtimePID,
				map[string]time.Duration{"kubelet": 4 * time.Second, "runtime": 50 * time.Second}, map[string]int{"kubelet": 40 * page, "runtime": 496}},
			"no runtime": {"/podd", "/containerd", 0,
				map[string]time.Duration{"kubelet": 40 * time.Second}, map[string]int{"kubelet": 396}},
			"a runtime that has ended": {"/podd", "/containerd", 4242,
				map[string]time.Duration{"kubelet": 40 * time.Second}, map[string]int{"kubelet": 396}},
			"a cgroup that is not in the hierarchy": {"/podd", "/elsewhere", runtimePID,
				map[string]time.Duration{"kubelet": 40 * time.Second}, map[string]int{"kubelet": 396}},
		} {
			t.Run(name, func(t *testing.T) {
				m.process(os.Getpid(), process{started: 20 * time.Second, cpu: 4 * time.Second, pages: 40, cgroup: tt.podd})
				m.process(runtimePID, process{started: 30 * time.Second, cpu: 5 * time.Second, pages: 50, cgroup: tt.runtime})
				c := m.withRuntime(func() int { return tt.pid })
				s := summary(t, c, true)
				if got := systemContainers(s); len(got) != len(tt.cpu)+1 || !slices.Contains(got, "pods") {
					t.Errorf("got the system containers %q, want those of %v and pods", got, tt.cpu)
				}
				for name, cpu := range tt.cpu {
					k := systemContainer(s, name)
					if k == nil {
						t.Errorf("%s is not there", name)
						continue
					}
					if got := time.Duration(*k.CPU.UsageCoreNanoSeconds); got != cpu || *k.Memory.WorkingSetBytes != uint64(tt.memory[name]) {
						t.Errorf("%s: got %v of CPU and %d bytes, want %v and %d", name, got, *k.Memory.WorkingSetBytes, cpu, tt.memory[name])
					}
					if k.Memory.AvailableBytes != nil || k.Swap.SwapAvailableBytes != nil {
						t.Errorf("%s: something is available of limits that it does not have: %+v", name, k)
					}
					if since := time.Since(k.CPU.Time.Time); since > time.Minute || !k.Memory.Time.Equal(&k.CPU.Time) {
						t.Errorf("%s: got the time %s, of memory %s, want now", name, k.CPU.Time, k.Memory.Time)
					}
					after := map[string]time.Duration{"kubelet": 20 * time.Second, "runtime": 30 * time.Second}[name]
					if got := k.StartTime.Sub(c.cfg.Kernel.Booted()); got < after-time.Second || got > after+time.Second {
						t.Errorf("%s: started %v after the boot, want %v", name, got, after)
					}
				}
				if k := systemContainer(s, "pods"); *k.CPU.UsageCoreNanoSeconds != 9e9 {
					t.Errorf("pods: got %d ns, want what all pods use", *k.CPU.UsageCoreNanoSeconds)
				}
			})
		}
	})
}

func TestTheCgroupOfTheSystemIsMisc(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		c := m.collector()
		c.cfg.SystemCgroup = "/system"
		if got := systemContainers(summary(t, c, true)); !slices.Equal(got, []string{"pods"}) {
			t.Errorf("without such a cgroup: got %q", got)
		}
		m.files("/system", 0, 4e9, 70)
		for _, storage := range []bool{true, false} {
			if got := systemContainer(summary(t, c, storage), "misc"); got == nil || *got.CPU.UsageCoreNanoSeconds != 4e9 || *got.Memory.WorkingSetBytes != 66 || got.StartTime.IsZero() || got.Rootfs != nil {
				t.Errorf("got %+v", got)
			}
		}
		if got := systemContainers(summary(t, m.collector(), true)); !slices.Equal(got, []string{"pods"}) {
			t.Errorf("without systemCgroups: got %q", got)
		}
	})
}

// cores is a rate of CPU, NaN for none.
func cores(k *api.ContainerStats) float64 {
	if k == nil || k.CPU == nil || k.CPU.UsageNanoCores == nil {
		return math.NaN()
	}
	return float64(*k.CPU.UsageNanoCores) / 1e9
}

func TestSystemContainersHaveRates(t *testing.T) {
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		synctest.Test(t, func(t *testing.T) {
			c := m.withRuntime(func() int { return runtimePID })
			c.cfg.SystemCgroup = "/system"
			var s *api.Summary
			for n := range 2 {
				used := time.Duration(n) * time.Second
				m.files("/system", 0, float64(4e9+used*8), 70)
				m.files("/containerd", 0, float64(50e9+used*4), 70)
				m.process(os.Getpid(), process{cpu: 4*time.Second + used})
				m.process(runtimePID, process{cpu: 5 * time.Second, cgroup: "/containerd"})
				time.Sleep(20 * time.Second)
				s = summary(t, c, true)
			}
			for name, want := range map[string]float64{"kubelet": 0.05, "runtime": 0.2, "misc": 0.4, "pods": 0} {
				if got := cores(systemContainer(s, name)); got != want {
					t.Errorf("%s: got %v cores, want %v", name, got, want)
				}
			}
		})
	})
}

// A runtime whose socket nobody listens to for a moment is still there.
func TestARuntimeIsMeasuredForAsLongAsItsProcessLives(t *testing.T) {
	m := newMachine(t, true)
	pid := runtimePID
	c := m.withRuntime(func() int { return pid })
	m.process(runtimePID, process{started: time.Second, cpu: time.Second})
	summary(t, c, false)
	pid = 0
	m.process(runtimePID, process{started: time.Second, cpu: 2 * time.Second})
	if k := systemContainer(summary(t, c, false), "runtime"); k == nil || *k.CPU.UsageCoreNanoSeconds != 2e9 {
		t.Errorf("got %+v, want the process that was known", k)
	}
	if err := os.RemoveAll(m.dir + "/proc/4711"); err != nil {
		t.Fatal(err)
	}
	if k := systemContainer(summary(t, c, false), "runtime"); k != nil {
		t.Errorf("it has ended: got %+v", k)
	}
	pid = 4712
	m.process(4712, process{started: time.Minute, cpu: 3 * time.Second})
	if k := systemContainer(summary(t, c, false), "runtime"); k == nil || *k.CPU.UsageCoreNanoSeconds != 3e9 {
		t.Errorf("it is back: got %+v, want its new process", k)
	}
}

// The kernel gives the number of a process that has ended to another one.
func TestARecycledPIDIsNotTakenForTheRuntime(t *testing.T) {
	m := newMachine(t, true)
	pid := runtimePID
	c := m.withRuntime(func() int { return pid })
	m.process(runtimePID, process{started: time.Second, cpu: time.Second})
	summary(t, c, false)

	m.process(runtimePID, process{started: time.Minute, cpu: 7 * time.Second})
	pid = 0
	if k := systemContainer(summary(t, c, false), "runtime"); k != nil {
		t.Errorf("the runtime is down, and its PID is another program's: got %+v", k)
	}
	pid = 4712
	m.process(4712, process{started: 2 * time.Minute, cpu: 3 * time.Second})
	k := systemContainer(summary(t, c, false), "runtime")
	if k == nil || *k.CPU.UsageCoreNanoSeconds != 3e9 {
		t.Fatalf("the runtime has another PID: got %+v, want its new process", k)
	}
	if got := k.StartTime.Sub(c.cfg.Kernel.Booted()); got < 119*time.Second || got > 121*time.Second {
		t.Errorf("started %v after the boot, want the two minutes of its new process", got)
	}
}

// TestARestartedRuntimeHasARateOfItsOwn, with the PID of the former one and without: it has not
// used what that one had.
func TestARestartedRuntimeHasARateOfItsOwn(t *testing.T) {
	for name, pid := range map[string]int{"the same PID": runtimePID, "another PID": 4712} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, true)
			synctest.Test(t, func(t *testing.T) {
				now := runtimePID
				c := m.withRuntime(func() int { return now })
				up := time.Since(c.cfg.Kernel.Booted())
				m.process(runtimePID, process{cpu: 6 * time.Second})
				summary(t, c, false)
				time.Sleep(20 * time.Second)
				if err := os.RemoveAll(m.dir + "/proc/4711"); err != nil {
					t.Fatal(err)
				}
				now = pid
				m.process(pid, process{started: up + 10*time.Second, cpu: 7 * time.Second})
				k := systemContainer(summary(t, c, false), "runtime")
				ago := k.CPU.Time.Sub(k.StartTime.Time)
				if ago < 9*time.Second || ago > 11*time.Second {
					t.Errorf("started %v ago, want the ten seconds of its new process", ago)
				}
				want := 7 / ago.Seconds()
				if got := cores(k); math.Abs(got-want) > 0.01 {
					t.Errorf("got %v cores, want %v", got, want)
				}
				time.Sleep(20 * time.Second)
				m.process(pid, process{started: up + 10*time.Second, cpu: 8 * time.Second})
				if got := cores(systemContainer(summary(t, c, false), "runtime")); got != 0.05 {
					t.Errorf("later: got %v cores, want 0.05", got)
				}
			})
		})
	}
}

// The shims of containerd stay in its cgroup when systemd restarts it (KillMode=process): what
// they have used in their life is not of the new process.
func TestARateOfADaemonsCgroupDoesNotBeginWithItsProcess(t *testing.T) {
	m := newMachine(t, true)
	m.files("/containerd", 0, 1000e9, 70)
	synctest.Test(t, func(t *testing.T) {
		c := m.withRuntime(func() int { return runtimePID })
		up := time.Since(c.cfg.Kernel.Booted())
		read := func(started time.Duration, used float64) float64 {
			m.process(runtimePID, process{started: started, cgroup: "/containerd"})
			m.files("/containerd", 0, used, 70)
			return cores(systemContainer(summary(t, c, false), "runtime"))
		}
		if got := read(up-10*time.Second, 1000e9); !math.IsNaN(got) {
			t.Errorf("at first: got %v cores, want none yet", got)
		}
		time.Sleep(20 * time.Second)
		if got := read(up-10*time.Second, 1001e9); got != 0.05 {
			t.Errorf("got %v cores, want 0.05", got)
		}
		time.Sleep(20 * time.Second)
		if got := read(up+30*time.Second, 1003e9); got != 0.1 {
			t.Errorf("restarted: got %v cores, want the 0.1 of its cgroup", got)
		}
	})
}
