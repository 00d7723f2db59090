package eviction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"podd/eviction/threshold"
	"podd/internal/pod"
)

// machine is a node that behaves: what pods take is missing until they are gone.
type machine struct {
	mu        sync.Mutex
	began     time.Time
	have      map[threshold.Signal]int64 // of 1000 each; missing ones cannot be measured
	pods      []tried
	gives     map[string]int64         // what the end of a pod gives back, of all signals
	takesLong map[string]time.Duration // until a pod has ended
	garbage   int64                    // what Reclaim gives back
	late      time.Duration            // after how long
	separate  bool
	refuses   string // a pod that is not evicted

	looks, usages, reclaims int
	log                     []string // what was done, with the time since the start

	fails   error        // of Reclaim
	maxWait [2]time.Time // the deadlines of the last measurement and of the last search
	logged  bytes.Buffer // by the Manager
	metrics *prometheus.Registry
	// maxGrace is 20 s unless it is set.
	maxGrace time.Duration
}

func (m *machine) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%v ", time.Since(m.began))+fmt.Sprintf(format, args...))
}

func (m *machine) Observe(_ context.Context, signals []threshold.Signal) Observations {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	o := Observations{}
	for _, s := range signals {
		if n, ok := m.have[s]; ok {
			o[s] = Observation{Available: n, Capacity: 1000, Time: time.Now()}
		}
	}
	return o
}

func (m *machine) HasDedicatedImageFS(context.Context) bool { return m.separate }

func (m *machine) give(n int64) {
	for s := range m.have {
		m.have[s] += n
	}
}

func (m *machine) Reclaim(ctx context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reclaims++
	m.maxWait[1], _ = ctx.Deadline()
	freed := m.garbage > 0
	m.say("reclaim")
	n := m.garbage
	m.garbage = 0
	if m.late > 0 {
		time.AfterFunc(m.late, func() { m.mu.Lock(); m.give(n); m.mu.Unlock() })
	} else {
		m.give(n)
	}
	return freed, m.fails
}

func (m *machine) Active() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*v1.Pod
	for _, t := range m.pods {
		all = append(all, t.pod)
	}
	return all
}

func (m *machine) Usage(ctx context.Context, pods []*v1.Pod, _ v1.ResourceName) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usages++
	m.maxWait[0], _ = ctx.Deadline()
	u := Usage{}
	for _, t := range m.pods {
		if t.used != nil && slices.Contains(pods, t.pod) {
			u[t.pod.UID] = t.used
		}
	}
	return u
}

func (m *machine) Evict(uid pod.UID, e pod.Eviction) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if string(uid) == m.refuses {
		return false
	}
	if e.Condition.Type != v1.DisruptionTarget || e.Condition.Reason != "TerminationByKubelet" || e.Condition.Message != e.Message || e.Message == "" {
		m.say("bad eviction %+v", e)
	}
	m.say("evict %s (%s, %s)", uid, e.Signal, e.Grace)
	return true
}

func (m *machine) AwaitReleased(ctx context.Context, uid pod.UID) {
	m.mu.Lock()
	takes := m.takesLong[string(uid)]
	m.mu.Unlock()
	end := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pods = slices.DeleteFunc(m.pods, func(t tried) bool { return t.pod.UID == uid })
		m.give(m.gives[string(uid)])
	}
	select {
	case <-time.After(takes):
		end()
	case <-ctx.Done():
		m.mu.Lock()
		m.say("no longer waiting for %s", uid)
		m.mu.Unlock()
	}
}

func (m *machine) NodeEvent(eventType, reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say("%s %s %s", eventType, reason, message)
}

func (m *machine) set(s threshold.Signal, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have[s] = n
}

func (m *machine) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.log, "\n")
}

// play runs a Manager in a bubble while script acts.
func play(t *testing.T, n *machine, s threshold.Settings, script func(m *Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		thresholds, mistakes := threshold.Parse(s)
		if mistakes != nil {
			t.Fatal(mistakes)
		}
		n.began = time.Now()
		if n.maxGrace == 0 {
			n.maxGrace = 20 * time.Second
		}
		c := Config{
			Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriod: n.maxGrace, Node: n, Pods: n, Recorder: n,
			Changed: func() { n.mu.Lock(); n.say("changed"); n.mu.Unlock() }, Log: slog.New(slog.NewTextHandler(&n.logged, nil)),
		}
		if n.metrics != nil {
			c.Metrics = n.metrics
		}
		m := New(c)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		script(m)
		if len(ended) > 0 {
			t.Error("Run ended before it was told to")
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

type pairs = map[string]string

func conditions(m *Manager) string { return fmt.Sprint(m.Conditions()) }

func check(t *testing.T, n *machine, want ...string) {
	t.Helper()
	if got := n.said(); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// TestOnePodIsEvictedAtATimeUntilThereIsEnough, with what is to be reclaimed; the condition
// holds five minutes longer.
func TestOnePodIsEvictedAtATimeUntilThereIsEnough(t *testing.T) {
	static := aPod("static", memory(900*mib))
	static.pod.Annotations = map[string]string{pod.AnnotationSource: "file"}
	n := &machine{
		have:  map[threshold.Signal]int64{threshold.MemoryAvailable: 500},
		pods:  []tried{aPod("small", memory(mib)), aPod("big", memory(50*mib)), aPod("system", prior(2000000000), memory(800*mib)), static},
		gives: map[string]int64{"big": 40, "small": 40}, takesLong: map[string]time.Duration{"big": 3 * time.Second},
	}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "100"}, MinReclaim: pairs{"memory.available": "50"}}, func(m *Manager) {
		after(35 * time.Second)
		if n.looks != 4 || n.usages != 0 || n.reclaims != 0 || conditions(m) != "[]" || m.Problems() != nil {
			t.Errorf("without pressure there were %d looks, %d measurements of pods and %d reclaims; under %s", n.looks, n.usages, n.reclaims, conditions(m))
		}
		n.set(threshold.MemoryAvailable, 99) // + 40 is above the threshold, + 40 + 40 by what is to be reclaimed
		after(30 * time.Second)
		if conditions(m) != "[MemoryPressure]" {
			t.Errorf("under %s", conditions(m))
		}
		if p := m.Problems(); len(p) != 1 || !strings.Contains(p[0].String(), "there is enough again since") {
			t.Errorf("problems: %v", p)
		}
		after(4*time.Minute + 37*time.Second) // last met at 43 s
		if conditions(m) != "[MemoryPressure]" {
			t.Error("the condition did not hold for the transition period")
		}
		after(time.Minute)
		if conditions(m) != "[]" || m.Problems() != nil {
			t.Error("the condition held longer than the transition period")
		}
	})
	check(t, n, "40s changed", "40s Warning EvictionThresholdMet Attempting to reclaim memory", "40s evict big (memory.available, 1s)",
		"43s evict small (memory.available, 1s)", "5m43s changed")
}

// TestASoftThresholdHasAGracePeriod: what is over sooner evicts nobody, and yet is pressure.
func TestASoftThresholdHasAGracePeriod(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.PIDAvailable: 500}, pods: []tried{aPod("slow"), aPod("quick")}, gives: map[string]int64{"slow": 100, "quick": 100}}
	long, short := int64(300), int64(5)
	n.pods[0].pod.Spec.TerminationGracePeriodSeconds, n.pods[1].pod.Spec.TerminationGracePeriodSeconds = &long, &short
	n.pods[1].pod.Spec.Priority = new(int32(5))
	play(t, n, threshold.Settings{Soft: pairs{"pid.available": "10%"}, SoftGrace: pairs{"pid.available": "1m"}}, func(m *Manager) {
		n.set(threshold.PIDAvailable, 1)
		after(55 * time.Second)
		if conditions(m) != "[PIDPressure]" {
			t.Errorf("under %s", conditions(m))
		}
		n.set(threshold.PIDAvailable, 500)
		after(10 * time.Second)
		n.set(threshold.PIDAvailable, 1) // seen at 70 s: the grace period begins anew
		after(30 * time.Second)
		check(t, n, "10s changed")
		after(45 * time.Second)
	})
	// Evicted with min(20 s, the pod's own); enough at once.
	check(t, n, "10s changed", "2m10s Warning EvictionThresholdMet Attempting to reclaim pids", "2m10s evict slow (pid.available, 20s)")
}

// TestWhatNobodyNeedsIsReclaimedFirst: a disk that is relieved by that costs no pod, also
// where the runtime frees space after it has answered.
func TestWhatNobodyNeedsIsReclaimedFirst(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond} {
		n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 50}, garbage: 100, late: late, pods: []tried{aPod("web")}}
		play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%"}}, func(*Manager) { after(time.Minute) })
		check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s reclaim")
	}
}

func TestAPodIsEvictedWhereReclaimingIsNotEnough(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.ImageFSInodesFree: 10}, garbage: 1, pods: []tried{aPod("web", layer(1, 9)), aPod("more", layer(1, 99))}, gives: map[string]int64{"more": 400}}
	play(t, n, threshold.Settings{Hard: pairs{"imagefs.inodesFree": "5%"}}, func(*Manager) { after(time.Minute) })
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim inodes", "0s reclaim", "1s reclaim", "1s evict more (imagefs.inodesFree, 1s)")
}

// TestImagesAreNotOnThePodsDisk, where the runtime has its own: removing them is of no use.
func TestImagesAreNotOnThePodsDisk(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 50, threshold.ImageFSAvailable: 900}, garbage: 100, separate: true,
		pods: []tried{aPod("layer", layer(900, 1)), aPod("volume", volume("scratch", 10, 1))}, gives: map[string]int64{"volume": 100}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%", "imagefs.available": "10%"}}, func(*Manager) { after(time.Minute) })
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage", "0s evict volume (nodefs.available, 1s)")
}

// TestMemoryIsRelievedBeforeDisks, and nobody is evicted who cannot be: the next one is.
func TestMemoryIsRelievedBeforeDisks(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1, threshold.NodeFSAvailable: 1, threshold.PIDAvailable: 1},
		pods: []tried{aPod("big", memory(9)), aPod("web", memory(1))}, gives: map[string]int64{"web": 500}, refuses: "big"}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%", "pid.available": "10%", "memory.available": "10%"}}, func(m *Manager) {
		after(time.Minute)
		if conditions(m) != "[MemoryPressure DiskPressure PIDPressure]" {
			t.Errorf("under %s", conditions(m))
		}
	})
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim memory", "0s evict web (memory.available, 1s)")
}

// TestAPodThatDoesNotEndHasAnotherEvictedInTheEnd, thirty seconds later; an event says so
// once a minute.
func TestAPodThatDoesNotEndHasAnotherEvictedInTheEnd(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1}, pods: []tried{aPod("stuck", memory(9)), aPod("web", memory(1))},
		gives: map[string]int64{"web": 500}, takesLong: map[string]time.Duration{"stuck": time.Hour}}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%"}}, func(*Manager) {
		after(15 * time.Second)
		n.mu.Lock()
		n.refuses = "stuck" // as it is ending already
		n.mu.Unlock()
		after(time.Minute)
	})
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim memory", "0s evict stuck (memory.available, 1s)",
		"30s no longer waiting for stuck", "30s evict web (memory.available, 1s)")
}

// TestNobodyIsLeftToEvict: the node goes on looking, every ten seconds, and says it once.
func TestNobodyIsLeftToEvict(t *testing.T) {
	static := aPod("static")
	static.pod.Annotations = map[string]string{pod.AnnotationSource: "file"}
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1}, pods: []tried{static}}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%"}}, func(m *Manager) {
		after(55 * time.Second)
		if p := m.Problems(); len(p) != 1 || !strings.HasPrefix(p[0].String(), "node: MemoryPressure: memory.available is 1 B of 1000 B, below the threshold of 100 B") {
			t.Errorf("problems: %v", p)
		}
	})
	if n.looks != 6 || n.usages != 0 {
		t.Errorf("%d looks, %d measurements of pods", n.looks, n.usages)
	}
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim memory")
}

// TestWhatNobodyNeedsIsReclaimedAlsoWhereNobodyCanBeEvictedForMemory.
func TestWhatNobodyNeedsIsReclaimedAlsoWhereNobodyCanBeEvictedForMemory(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 1, threshold.ImageFSAvailable: 1, threshold.NodeFSAvailable: 1}, garbage: 1}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%", "imagefs.available": "10%", "nodefs.available": "10%"}}, func(*Manager) { after(5 * time.Second) })
	check(t, n, "0s changed", "0s Warning EvictionThresholdMet Attempting to reclaim memory", "0s Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage",
		"0s reclaim", "1s reclaim")
}

// TestADiskThatStaysFullIsNotSearchedAtEachLook: where nothing was found, it is each half minute,
// and after each eviction.
func TestADiskThatStaysFullIsNotSearchedAtEachLook(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 1}}
	play(t, n, threshold.Settings{Hard: pairs{"nodefs.available": "10%"}}, func(*Manager) {
		after(115 * time.Second)
		if n.looks != 12+4 || n.reclaims != 4 { // one more after each search
			t.Errorf("%d looks and %d searches in two minutes, want 16 and 4", n.looks, n.reclaims)
		}
		n.mu.Lock()
		n.pods = []tried{aPod("web", layer(9, 9))}
		n.mu.Unlock()
		after(10 * time.Second)
		if n.reclaims != 6 { // one before the eviction is due again, one after it
			t.Errorf("%d searches after an eviction", n.reclaims)
		}
	})
}

// TestWhatCannotBeMeasuredIsNoPressure, nor the end of it: it counts as not met, as with the
// kubelet, and the transition period runs.
func TestWhatCannotBeMeasuredIsNoPressure(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.NodeFSAvailable: 1000}}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "10%", "nodefs.available": "10%"}}, func(m *Manager) {
		after(time.Minute)
		if conditions(m) != "[]" {
			t.Errorf("under %s", conditions(m))
		}
	})
	check(t, n)
}

func TestWithoutThresholdsNothingIsMeasured(t *testing.T) {
	n := &machine{}
	play(t, n, threshold.Settings{Hard: pairs{"memory.available": "0%"}}, func(*Manager) { after(time.Hour) })
	if n.looks != 0 {
		t.Errorf("%d looks", n.looks)
	}
}

// ringer is an Alarm that somebody sets off.
type ringer struct {
	c     chan struct{}
	armed map[threshold.Signal]int64
}

func (r *ringer) Arm(s threshold.Signal, available int64) error { r.armed[s] = available; return nil }
func (r *ringer) C() <-chan struct{}                            { return r.c }
func (r *ringer) Close()                                        { r.armed = nil }

// TestAnAlarmHasTheNodeLookedAtAtOnce, and no more than once a second.
func TestAnAlarmHasTheNodeLookedAtAtOnce(t *testing.T) {
	n := &machine{have: map[threshold.Signal]int64{threshold.MemoryAvailable: 500, threshold.PIDAvailable: 500}}
	r := &ringer{armed: map[threshold.Signal]int64{}}
	synctest.Test(t, func(t *testing.T) {
		r.c = make(chan struct{})
		thresholds, _ := threshold.Parse(threshold.Settings{Hard: pairs{"memory.available": "10%", "pid.available": "10%"}})
		m := New(Config{Thresholds: thresholds, Node: n, Pods: n, Recorder: n, Alarm: r})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		after(4500 * time.Millisecond)
		if len(r.armed) != 1 || r.armed[threshold.MemoryAvailable] != 100 {
			t.Errorf("armed: %v", r.armed)
		}
		n.set(threshold.MemoryAvailable, 50)
		r.c <- struct{}{}
		synctest.Wait()
		if n.looks != 2 || conditions(m) != "[MemoryPressure]" {
			t.Errorf("%d looks, under %s", n.looks, conditions(m))
		}
		for range 3 {
			r.c <- struct{}{} // blocks until the second is over
		}
		synctest.Wait()
		if n.looks != 5 {
			t.Errorf("%d looks", n.looks)
		}
		stop()
		running.Wait()
	})
	if r.armed != nil {
		t.Error("the alarm was not closed")
	}
}

func TestPressureIsAMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	if got, err := testutil.GatherAndCount(reg, "podd_node_pressure"); got != 3 || err != nil {
		t.Errorf("before the first look %d conditions are told, %v; want three without pressure", got, err)
	}
	m.setConditions([]v1.NodeConditionType{v1.NodeDiskPressure})
	want := `
# HELP podd_node_pressure 1 while the node is under the condition of pressure, 0 otherwise.
# TYPE podd_node_pressure gauge
podd_node_pressure{condition="DiskPressure"} 1
podd_node_pressure{condition="MemoryPressure"} 0
podd_node_pressure{condition="PIDPressure"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "podd_node_pressure"); err != nil {
		t.Error(err)
	}
}
