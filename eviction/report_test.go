package eviction

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"podd/eviction/threshold"
	"podd/internal/pod"
)

// warned is how often the log has a text.
func (m *machine) warned(text string) int { return strings.Count(m.logged.String(), text) }

func expectLogged(t *testing.T, n *machine, what string, want map[string]int) {
	t.Helper()
	for text, count := range want {
		if got := n.warned(text); got != count {
			t.Errorf("%s: %q is logged %d times, want %d:\n%s", what, text, got, count, n.logged.String())
		}
	}
}

const (
	under   = "node is under pressure\" condition="
	over    = "node is no longer under pressure"
	nobody  = "no pod may be evicted"
	waiting = "evicted pod has not ended yet"
)

// TestPressureIsToldOnce, and its end; a problem is as old as the pressure.
func TestPressureIsToldOnce(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 500, threshold.PIDAvailable: 500}, metrics: prometheus.NewRegistry()}
	pressure := func(want string) {
		t.Helper()
		text := "# HELP podd_node_pressure 1 while the node is under the condition of pressure, 0 otherwise.\n# TYPE podd_node_pressure gauge\n" + want
		if err := testutil.GatherAndCompare(n.metrics, strings.NewReader(text), "podd_node_pressure"); err != nil {
			t.Error(err)
		}
	}
	const disk, memory, pids = "podd_node_pressure{condition=\"DiskPressure\"} ", "podd_node_pressure{condition=\"MemoryPressure\"} ", "podd_node_pressure{condition=\"PIDPressure\"} "
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%", "pid.available": "10%"}}, func(m *Manager) {
		pressure(disk + "0\n" + memory + "0\n" + pids + "0\n")
		n.set(threshold.MemoryAvailable, 1)
		after(15 * time.Second)
		memorySince, pidsSince := n.began.Add(10*time.Second), n.began.Add(20*time.Second)
		n.set(threshold.PIDAvailable, 1)
		after(time.Minute)
		pressure(disk + "0\n" + memory + "1\n" + pids + "1\n")
		expectLogged(t, n, "both", map[string]int{under: 2, over: 0, nobody: 1})
		for range 2 { // looks
			for _, p := range m.Problems() {
				since, own, other := memorySince, "memory.available", "pid.available"
				if p.Field == "PIDPressure" {
					since, own, other = pidsSince, other, own
				}
				if !p.Since.Equal(since) || !strings.HasPrefix(p.Message, own+" is 1") || strings.Contains(p.Message, other) {
					t.Errorf("got %s since %v, want it since %v, and %s alone", p.String(), p.Since, since, own)
				}
			}
			after(10 * time.Second)
		}
		n.set(threshold.MemoryAvailable, 500)
		after(6 * time.Minute)
		pressure(disk + "0\n" + memory + "0\n" + pids + "1\n")
		expectLogged(t, n, "one is over", map[string]int{under: 2, over: 1, nobody: 1})
		n.set(threshold.PIDAvailable, 500)
		after(6 * time.Minute)
		n.set(threshold.MemoryAvailable, 1)
		after(time.Minute)
		expectLogged(t, n, "again", map[string]int{under: 3, over: 2, nobody: 2})
	})
}

// TestPodsThatMayNotBeEvictedAreToldOnceToo.
func TestPodsThatMayNotBeEvictedAreToldOnceToo(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1}, pods: []tried{aPod("web", memory(9))}, refuses: "web"}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%"}}, func(*Manager) { after(55 * time.Second) })
	expectLogged(t, n, "refused", map[string]int{nobody: 1, "pod evicted": 0})
	if n.looks != 6 {
		t.Errorf("%d looks, want one in ten seconds", n.looks)
	}
}

// TestAttemptsAreAnEventOnceAMinute: the node is short for as long as its pods take to end.
func TestAttemptsAreAnEventOnceAMinute(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1}, takesLong: map[string]time.Duration{}, metrics: prometheus.NewRegistry()}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		n.pods = append(n.pods, aPod(name, memory(9)))
		n.takesLong[name] = 20 * time.Second
	}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%"}}, func(*Manager) { after(115 * time.Second) })
	said := n.said()
	for _, at := range []string{"0s", "1m0s"} {
		if !strings.Contains(said, at+" Warning EvictionThresholdMet") {
			t.Errorf("no event at %s", at)
		}
	}
	if got := strings.Count(said, "EvictionThresholdMet"); got != 2 {
		t.Errorf("%d events, want 2:\n%s", got, said)
	}
	expectLogged(t, n, "each ended in time", map[string]int{"pod evicted": 6, waiting: 0})
	if got, err := testutil.GatherAndCount(n.metrics, "kubelet_eviction_stats_age_seconds"); got != 1 || err != nil {
		t.Errorf("%d signals have an age of statistics: %v", got, err)
	}
}

func TestAPodThatDoesNotEndIsTold(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1}, pods: []tried{aPod("stuck", memory(9))}, takesLong: map[string]time.Duration{"stuck": time.Hour}}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%"}}, func(*Manager) { after(35 * time.Second) })
	expectLogged(t, n, "after 35 s", map[string]int{waiting: 1}) // and not once more at the end
}

// TestMeasuringAndReclaimingAreBounded, and their failures told.
func TestMeasuringAndReclaimingAreBounded(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 1}, pods: []tried{aPod("web", layer(9, 9))}, gives: map[string]int64{"web": 500}, fails: errors.New("the runtime is away")}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%"}}, func(*Manager) { after(time.Second) })
	if got := [2]time.Duration{n.maxWait[0].Sub(n.began), n.maxWait[1].Sub(n.began)}; got != [2]time.Duration{30 * time.Second, 4 * time.Minute} {
		t.Errorf("measuring and reclaiming may take %v", got)
	}
	expectLogged(t, n, "a search that failed", map[string]int{"the runtime is away": 1})
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s reclaim", "0s evict web (nodefs.available, 1s)")
}

// TestADiskIsSearchedAgainOnceSomethingWasFound: only where nothing was is it left alone for
// half a minute.
func TestADiskIsSearchedAgainOnceSomethingWasFound(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 1}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%"}}, func(*Manager) {
		after(25 * time.Second) // searched at 0 s, and nothing found
		n.mu.Lock()
		n.garbage = 1 // found at 30 s
		n.mu.Unlock()
		after(30 * time.Second) // searched once more at 31 s, as the space may come late, and nothing found
	})
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s reclaim", "30s reclaim", "31s reclaim")
}

// TestADiskThatWasRelievedIsNotSearchedForItsOtherSignals.
func TestADiskThatWasRelievedIsNotSearchedForItsOtherSignals(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 50, threshold.NodeFSInodesFree: 50}, garbage: 100, pods: []tried{aPod("web", layer(9, 9))}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%", "nodefs.inodesFree": "10%"}}, func(*Manager) { after(5 * time.Second) })
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s reclaim")
	expectLogged(t, n, "relieved", map[string]int{"relieved without evicting": 1})
}

// TestADiskIsRelievedWhateverMemoryIs: only disks are relieved by what is reclaimed.
func TestADiskIsRelievedWhateverMemoryIs(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1, threshold.NodeFSAvailable: 1}, garbage: 100}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "50%", "nodefs.available": "10%"}}, func(*Manager) { after(5 * time.Second) })
	expectLogged(t, n, "relieved", map[string]int{"relieved without evicting": 1})
}

// TestAPodIsEvictedThoughNothingWasFoundLately: the disk is not searched again for it.
func TestAPodIsEvictedThoughNothingWasFoundLately(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 1}, gives: map[string]int64{"web": 500}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%"}}, func(*Manager) {
		after(5 * time.Second) // searched at 0 s
		n.mu.Lock()
		n.pods = []tried{aPod("web", layer(9, 9))}
		n.mu.Unlock()
		after(10 * time.Second)
	})
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s reclaim", "10s evict web (nodefs.available, 1s)")
}

// TestInodesOfThePodsDiskAreNotTheImages, where the runtime has a disk of its own.
func TestInodesOfThePodsDiskAreNotTheImages(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSInodesFree: 50, threshold.ImageFSInodesFree: 900}, garbage: 100, separate: true,
		pods: []tried{aPod("web", layer(9, 9))}, gives: map[string]int64{"web": 100}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.inodesFree": "10%", "imagefs.inodesFree": "10%"}}, func(*Manager) { after(time.Minute) })
	if n.reclaims != 0 {
		t.Errorf("%d searches of another disk", n.reclaims)
	}
}

func TestTheGracePeriodOfAnEvictedPod(t *testing.T) {
	for _, c := range []struct {
		hard           bool
		own, deletion  *int64
		most, expected time.Duration
	}{
		{true, new(int64(300)), nil, 20 * time.Second, time.Second},
		{false, nil, nil, -1, 30 * time.Second},
		{false, nil, nil, 20 * time.Second, 20 * time.Second},
		{false, new(int64(5)), nil, 20 * time.Second, 5 * time.Second},
		{false, new(int64(300)), nil, -1, 300 * time.Second},
		{false, new(int64(300)), nil, 0, 0},
		{false, new(int64(300)), new(int64(10)), -1, 10 * time.Second},
		{false, new(int64(5)), new(int64(10)), -1, 5 * time.Second},
	} {
		s := threshold.Settings{Soft: pairs{"memory.available": "10%"}, SoftGrace: pairs{"memory.available": "1m"}}
		if c.hard {
			s = threshold.Settings{Hard: pairs{"memory.available": "10%"}}
		}
		thresholds, mistakes := threshold.Parse(s)
		if mistakes != nil {
			t.Fatal(mistakes)
		}
		p := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: c.own}}
		p.DeletionGracePeriodSeconds = c.deletion
		m := New(Config{MaxPodGracePeriod: c.most})
		if got := m.gracePeriod(&thresholds[0], p); got != c.expected {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// deaf is an Alarm that cannot be armed.
type deaf struct {
	ringer
	tried []threshold.Signal
}

func (d *deaf) Arm(s threshold.Signal, _ int64) error {
	d.tried = append(d.tried, s)
	return pod.ErrUnimplemented
}

// TestAnAlarmIsArmedForWhatIsNotShort: what is met already would set it off all the time.
func TestAnAlarmIsArmedForWhatIsNotShort(t *testing.T) {
	thresholds, _ := threshold.Parse(threshold.Settings{Hard: pairs{"memory.available": "10%", "pid.available": "10%"}})
	for _, c := range []struct {
		available int64 // negative: it cannot be measured
		want      int
	}{{500, 1}, {50, 0}, {-1, 0}} {
		alarm := &deaf{}
		n := &machine{have: map[threshold.Signal]int64{threshold.PIDAvailable: 500}}
		if c.available >= 0 {
			n.have[threshold.MemoryAvailable] = c.available
		}
		m := New(Config{Thresholds: thresholds, Node: n, Pods: n, Recorder: n, Alarm: alarm})
		m.synchronize(t.Context())
		if len(alarm.tried) != c.want {
			t.Errorf("%d available: armed for %v", c.available, alarm.tried)
		}
	}
}
