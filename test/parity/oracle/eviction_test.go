package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	upstream "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"

	"podd/admission"
	"podd/eviction"
	"podd/eviction/threshold"
	"podd/internal/pod"
)

// shortage is a node that is short of one thing, and stays so: both managers evict pods until
// there is none that they may evict. It is upstream's interfaces and podd's.
type shortage struct {
	mu        sync.Mutex
	pods      []*v1.Pod // those that run
	used      map[pod.UID]statsapi.PodStats
	available map[threshold.Signal]uint64
	capacity  uint64
	separate  bool
	log       []string
}

func (s *shortage) active() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pods)
}

func (s *shortage) end(p *v1.Pod, grace time.Duration, reason, message string, c *v1.PodCondition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%s in %s: %s: %s (%s %s %s %s)", p.Name, grace, reason, message, c.Type, c.Status, c.Reason, c.Message))
	s.pods = slices.DeleteFunc(slices.Clone(s.pods), func(other *v1.Pod) bool { return other.UID == p.UID })
}

// Upstream's side.

func (s *shortage) Get(context.Context, bool) (*statsapi.Summary, error) {
	now := metav1.Now()
	of := func(sig threshold.Signal) *uint64 {
		n, known := s.available[sig]
		if !known {
			n = s.capacity
		}
		return &n
	}
	rest := func(sig threshold.Signal) *uint64 { n := s.capacity - *of(sig); return &n }
	signed := func(n uint64) *int64 { i := int64(n); return &i }
	out := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: now, AvailableBytes: of(threshold.MemoryAvailable), WorkingSetBytes: rest(threshold.MemoryAvailable)},
		SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: &statsapi.MemoryStats{
			Time: now, AvailableBytes: of(threshold.AllocatableMemoryAvailable), WorkingSetBytes: rest(threshold.AllocatableMemoryAvailable),
		}}},
		Fs: &statsapi.FsStats{Time: now, AvailableBytes: of(threshold.NodeFSAvailable), CapacityBytes: &s.capacity, InodesFree: of(threshold.NodeFSInodesFree), Inodes: &s.capacity},
		Runtime: &statsapi.RuntimeStats{
			ImageFs: &statsapi.FsStats{Time: now, AvailableBytes: of(threshold.ImageFSAvailable), CapacityBytes: &s.capacity, InodesFree: of(threshold.ImageFSInodesFree), Inodes: &s.capacity},
		},
		Rlimit: &statsapi.RlimitStats{Time: now, MaxPID: signed(s.capacity), NumOfRunningProcesses: signed(*rest(threshold.PIDAvailable))},
	}}
	for _, u := range s.used {
		out.Pods = append(out.Pods, u)
	}
	return out, nil
}

func (s *shortage) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return s.Get(ctx, false)
}
func (s *shortage) HasDedicatedImageFs(context.Context) (bool, error)     { return s.separate, nil }
func (s *shortage) HasDedicatedContainerFs(context.Context) (bool, error) { return false, nil }
func (s *shortage) DeleteUnusedImages(context.Context) error              { return nil }
func (s *shortage) DeleteAllUnusedContainers(context.Context) error       { return nil }

// kill is upstream's KillPodFunc.
func (s *shortage) kill(p *v1.Pod, _ bool, grace *int64, set func(*v1.PodStatus)) error {
	var st v1.PodStatus
	set(&st)
	s.end(p, time.Duration(*grace)*time.Second, st.Reason, st.Message, &st.Conditions[0])
	return nil
}

// podd's side.

func (s *shortage) Observe(_ context.Context, signals []threshold.Signal) eviction.Observations {
	o := eviction.Observations{}
	for _, sig := range signals {
		if n, known := s.available[sig]; known {
			o[sig] = eviction.Observation{Available: int64(n), Capacity: int64(s.capacity), Time: time.Now()}
		}
	}
	return o
}
func (s *shortage) HasDedicatedImageFS(context.Context) bool    { return s.separate }
func (s *shortage) Reclaim(context.Context) (bool, error)       { return false, nil }
func (s *shortage) Active() []*v1.Pod                           { return s.active() }
func (s *shortage) AwaitReleased(context.Context, pod.UID)      {}
func (s *shortage) NodeEvent(eventType, reason, message string) {}
func (s *shortage) Usage(_ context.Context, pods []*v1.Pod, _ v1.ResourceName) eviction.Usage {
	out := eviction.Usage{}
	for _, p := range pods {
		if u, known := s.used[p.UID]; known {
			out[p.UID] = &u
		}
	}
	return out
}
func (s *shortage) Evict(uid pod.UID, e pod.Eviction) bool {
	for _, p := range s.active() {
		if p.UID == uid {
			s.end(p, *e.Grace, pod.ReasonEvicted, e.Message, e.Condition)
			return true
		}
	}
	return false
}

// using is what a pod uses: no two use the same, since who comes first is then up to chance
// upstream.
func using(r *rand.Rand, p *v1.Pod) statsapi.PodStats {
	some := func() *uint64 {
		n := r.Uint64N(1 << 31)
		if r.IntN(4) == 0 {
			n = r.Uint64N(1 << 12)
		}
		return &n
	}
	fs := func() *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: some(), InodesUsed: some()} }
	u := statsapi.PodStats{PodRef: statsapi.PodReference{Name: p.Name, UID: string(p.UID)}, ProcessStats: &statsapi.ProcessStats{ProcessCount: some()}, Memory: &statsapi.MemoryStats{WorkingSetBytes: some()}}
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			u.Containers = append(u.Containers, statsapi.ContainerStats{Name: list[i].Name, Rootfs: fs(), Logs: fs(), Memory: &statsapi.MemoryStats{WorkingSetBytes: some()}})
		}
	}
	for _, v := range p.Spec.Volumes {
		u.VolumeStats = append(u.VolumeStats, statsapi.VolumeStats{Name: v.Name, FsStats: *fs()})
	}
	return u
}

func pressed(r *rand.Rand, name string) *v1.Pod {
	p := randomPod(r)
	p.Name, p.UID = name, pod.UID(name)
	for i := range p.Spec.Containers {
		if r.IntN(3) == 0 {
			p.Spec.Containers[i].Resources.Requests[v1.ResourceEphemeralStorage] = list(r, v1.ResourceList{})[v1.ResourceMemory]
		}
	}
	if r.IntN(2) == 0 {
		p.Spec.Priority = new(int32(r.IntN(3)))
	}
	seconds := int64(r.IntN(60))
	p.Spec.TerminationGracePeriodSeconds = &seconds
	switch r.IntN(8) {
	case 0:
		p.Spec.Priority = new(int32(2000001000))
	case 1:
		p.Annotations = map[string]string{pod.AnnotationSource: "file"}
	}
	for _, v := range []v1.VolumeSource{
		{EmptyDir: &v1.EmptyDirVolumeSource{}}, {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, {HostPath: &v1.HostPathVolumeSource{}},
		{ConfigMap: &v1.ConfigMapVolumeSource{}}, {Secret: &v1.SecretVolumeSource{}}, {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}},
	} {
		if r.IntN(3) == 0 {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", len(p.Spec.Volumes)), VolumeSource: v})
		}
	}
	return p
}

// TestEvictionIsUpstreams has both managers evict the pods of random nodes: in the same
// order, with the same grace periods and messages. Upstream's is driven through what it
// exports. What they do about several thresholds at once is not compared: upstream leaves
// that to chance, but for memory.
func TestEvictionIsUpstreams(t *testing.T) {
	klog.SetLogger(klog.Logger{}) // none
	t.Cleanup(klog.ClearLogger)
	r := rand.New(rand.NewPCG(4, 4))
	signals := []threshold.Signal{
		threshold.MemoryAvailable, threshold.AllocatableMemoryAvailable, threshold.NodeFSAvailable, threshold.NodeFSInodesFree,
		threshold.ImageFSAvailable, threshold.ImageFSInodesFree, threshold.PIDAvailable,
	}
	evicted, refused := 0, 0
	for round := range 400 {
		sig := signals[r.IntN(len(signals))]
		value := []string{"10%", "33.3%", "100M", "7Mi", "1000"}[r.IntN(5)]
		settings := threshold.Settings{Hard: map[string]string{string(sig): value}}
		if r.IntN(3) == 0 {
			settings = threshold.Settings{Soft: settings.Hard, SoftGrace: map[string]string{string(sig): "25s"}}
		}
		s := &shortage{used: map[pod.UID]statsapi.PodStats{}, capacity: 1 << 32, available: map[threshold.Signal]uint64{sig: r.Uint64N(1000)}, separate: r.IntN(2) == 0}
		unknown := r.IntN(12)
		for i := range 1 + r.IntN(8) {
			p := pressed(r, fmt.Sprint("p", i))
			s.pods = append(s.pods, p)
			if i != unknown {
				s.used[p.UID] = using(r, p)
			}
		}
		all := s.pods
		theirs, handler := upstreams(t, s, settings)
		s.log, s.pods = nil, all
		ours, conditions := podds(t, s, settings)
		if ours != theirs {
			t.Fatalf("round %d, %s %s, images apart: %v:\ngot\n%s\nwant\n%s", round, sig, value, s.separate, ours, theirs)
		}
		evicted += strings.Count(ours, "\n")
		sysctls, err := admission.NewSysctls("6.1.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		node := &admission.Node{Name: "n", Sysctls: sysctls, Pressure: func() []v1.NodeConditionType { return conditions }}
		for range 20 {
			p := pressed(r, "new")
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
			if r.IntN(3) == 0 {
				p.Spec = v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}
			}
			if r.IntN(3) == 0 {
				p.Spec.Tolerations = []v1.Toleration{{Key: []string{"", v1.TaintNodeMemoryPressure, v1.TaintNodeDiskPressure}[r.IntN(3)], Operator: v1.TolerationOpExists, Effect: []v1.TaintEffect{"", v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute}[r.IntN(3)]}}
			}
			want, got := handler.Admit(t.Context(), &lifecycle.PodAdmitAttributes{Pod: p}), admission.Admit(node, p, nil)
			mine := got.Reason != pod.ReasonEvicted // the rest of podd's admission is not upstream's handler's
			if mine != want.Admit || !mine && got.Message != want.Message {
				t.Fatalf("admission under %v: got %+v, want %+v for %+v", conditions, got, want, p.Spec)
			}
			if !mine {
				refused++
			}
		}
	}
	if evicted < 500 || refused < 500 {
		t.Errorf("%d pods were evicted and %d refused: the nodes are no test", evicted, refused)
	}
}

func upstreams(t *testing.T, s *shortage, settings threshold.Settings) (log string, handler lifecycle.PodAdmitHandler) {
	thresholds, err := upstream.ParseThresholdConfig(nil, settings.Hard, settings.Soft, settings.SoftGrace, settings.MinReclaim)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var m upstream.Manager
		m, handler = upstream.NewManager(s, upstream.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriodSeconds: 30},
			s.kill, s, s, &record.FakeRecorder{}, &v1.ObjectReference{}, clock.RealClock{}, false)
		over := make(chan struct{})
		pods := func() []*v1.Pod {
			select {
			case <-over:
				runtime.Goexit() // its loop has no other end
			default:
			}
			return s.active()
		}
		m.Start(t.Context(), s, pods, func(*v1.Pod) bool { return true }, 10*time.Second)
		time.Sleep(10 * time.Minute)
		close(over)
		time.Sleep(10 * time.Second) // it looks once more
	})
	return lines(s.log), handler
}

func podds(t *testing.T, s *shortage, settings threshold.Settings) (log string, conditions []v1.NodeConditionType) {
	thresholds, mistakes := threshold.Parse(settings)
	if mistakes != nil {
		t.Fatal(mistakes)
	}
	synctest.Test(t, func(t *testing.T) {
		m := eviction.New(eviction.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriod: 30 * time.Second, Node: s, Pods: s, Recorder: s})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		time.Sleep(10 * time.Minute)
		conditions = m.Conditions()
		stop()
		running.Wait()
	})
	return lines(s.log), conditions
}

func lines(all []string) string {
	return strings.Join(all, "\n") + strings.Repeat("\n", min(len(all), 1))
}
