package agent_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// patience is when a test gives up. What hangs here hangs until the test lets it
// go, so that whatever happens before has not waited for it; for how long podd
// does wait is told in simulated time.
const patience = time.Minute

func (m *many) add(d *pod.Desired) {
	m.updates <- pod.Update{Op: pod.OpAdd, Source: pod.SourceFile, Pods: []*pod.Desired{d}}
}

func (m *many) drop(d *pod.Desired) {
	m.updates <- pod.Update{Op: pod.OpRemove, Source: pod.SourceFile, Pods: []*pod.Desired{d}}
}

// edited is the same name with another content.
func edited(d *pod.Desired) *pod.Desired {
	out := *d
	out.Pod = d.Pod.DeepCopy()
	out.Pod.UID += "-edited"
	return &out
}

func (m *many) asked(t *testing.T, call string) {
	t.Helper()
	m.await(t, call+" is under way", patience, func() bool { return m.srv.Count(call) > 0 })
}

func (m *many) gone(t *testing.T) {
	t.Helper()
	m.await(t, "the pod is gone", patience, func() bool { return len(m.status.Pods()) == 0 })
}

// nothingLeft: no trace in the runtime.
func (m *many) nothingLeft(t *testing.T) {
	t.Helper()
	m.await(t, "the runtime has nothing of the pod", patience, func() bool {
		return len(m.srv.Sandboxes())+len(m.srv.Containers())+m.srv.Addresses() == 0
	})
}

// runsOnce: one sandbox, one container that runs, and both are d's.
func (m *many) runsOnce(t *testing.T, d *pod.Desired) {
	t.Helper()
	m.await(t, "the pod runs, once", patience, func() bool {
		boxes, all := m.srv.Sandboxes(), m.srv.RunningContainers()
		return m.running() == 1 && len(boxes) == 1 && boxes[0].UID == string(d.UID()) && len(all) == 1 && all[0].SandboxID == boxes[0].ID
	})
}

// TestPodRemovedWhileTheRuntimeMakesSomething: with each call that makes
// something hanging, the pod ends, stays away, comes back or comes back changed.
func TestPodRemovedWhileTheRuntimeMakesSomething(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		for _, then := range []string{"stays away", "comes back", "comes back at once", "is replaced"} {
			t.Run(call+", "+then, func(t *testing.T) {
				t.Parallel()
				m := startMany(t)
				release := m.srv.Hang(call)
				d := manyPod(0)
				m.add(d)
				m.asked(t, call)
				m.drop(d)
				switch then {
				case "stays away":
					m.gone(t)
					release()
					m.nothingLeft(t)
				case "comes back":
					m.gone(t)
					m.add(d)
					time.Sleep(100 * time.Millisecond)
					release()
					m.runsOnce(t, d)
				case "comes back at once":
					m.add(d)
					time.Sleep(100 * time.Millisecond)
					release()
					m.runsOnce(t, d)
				case "is replaced":
					next := edited(d)
					m.add(next)
					time.Sleep(1500 * time.Millisecond) // longer than a create gets
					release()
					m.runsOnce(t, next)
				}
			})
		}
	}
}

func TestPodRemovedWhileItWaitsForAPlaceEndsAtOnce(t *testing.T) {
	t.Parallel()
	m := startMany(t, func(c *agent.Config) { c.ParallelStarts = 1 })
	release := m.srv.Hang("RunPodSandbox")
	first, second := manyPod(0), manyPod(1)
	m.add(first)
	m.asked(t, "RunPodSandbox")
	m.add(second)
	m.await(t, "both are known", patience, func() bool { return len(m.status.Pods()) == 2 })
	m.drop(second)
	m.await(t, "the second is gone", patience, func() bool { return len(m.status.Pods()) == 1 })
	if n := m.srv.Count("RunPodSandbox"); n != 1 {
		t.Errorf("%d sandboxes were asked for, want the first pod's only", n)
	}
	release()
	m.runsOnce(t, first)
}

// pulling has no image until it is told to.
type pulling struct {
	present
	there *atomic.Bool
	asked *atomic.Int32
}

func (p pulling) Ensure(ctx context.Context, d *v1.Pod, c *v1.Container) (pod.ImageState, error) {
	p.asked.Add(1)
	if p.there.Load() {
		return p.present.Ensure(ctx, d, c)
	}
	return pod.ImageState{Reason: "ContainerCreating", Message: "pulling", RetryAt: time.Now().Add(200 * time.Millisecond)}, nil
}

func TestPodRemovedWhileItsImageIsPulledEndsAtOnce(t *testing.T) {
	t.Parallel()
	var images pulling
	m := startMany(t, func(c *agent.Config) {
		images = pulling{c.Images.(present), new(atomic.Bool), new(atomic.Int32)}
		c.Images = images
	})
	d := manyPod(0)
	for range 2 {
		before := images.asked.Load()
		m.add(d)
		m.await(t, "the image is asked for", patience, func() bool { return images.asked.Load() > before })
		m.drop(d)
		m.gone(t)
		m.nothingLeft(t)
	}
	m.add(d)
	images.there.Store(true)
	m.runsOnce(t, d)
}

// slowDisk sets volumes up when it is let, and notices when they are torn down
// under something.
type slowDisk struct {
	noVolumes
	mu   sync.Mutex
	gate chan struct{} // closed when it is let
	up   map[pod.UID]bool
}

func (s *slowDisk) Ensure(_ context.Context, p *v1.Pod) (pod.VolumeState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up[p.UID] = true
	select {
	case <-s.gate:
		return pod.VolumeState{Ready: true}, nil
	default:
		return pod.VolumeState{Message: "volumes are being set up"}, nil
	}
}

func (s *slowDisk) TearDown(_ context.Context, uid pod.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.up, uid)
	return nil
}

func (s *slowDisk) has(uid pod.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up[uid]
}

func TestPodRemovedWhileItsVolumesAreSetUpEndsAtOnce(t *testing.T) {
	t.Parallel()
	disk := &slowDisk{gate: make(chan struct{}), up: make(map[pod.UID]bool)}
	m := startMany(t, func(c *agent.Config) { c.Volumes = disk })
	d := manyPod(0)
	m.add(d)
	m.await(t, "its volumes are being set up", patience, func() bool { return disk.has(d.UID()) })
	m.drop(d)
	m.gone(t)
	if disk.has(d.UID()) {
		t.Error("half of its volumes are left")
	}
	if n := m.srv.Count("RunPodSandbox"); n != 0 {
		t.Errorf("%d sandboxes were asked for, want none", n)
	}
	close(disk.gate)
	m.add(d)
	m.runsOnce(t, d)
}

// TestPodThatRanToItsEnd keeps what its logs need and gives everything else
// back; after that podd comes and goes, and so does its manifest.
func TestPodThatRanToItsEnd(t *testing.T) {
	for _, tc := range []struct {
		policy v1.RestartPolicy
		code   int32
		phase  v1.PodPhase
	}{
		{v1.RestartPolicyNever, 0, v1.PodSucceeded},
		{v1.RestartPolicyNever, 3, v1.PodFailed},
		{v1.RestartPolicyOnFailure, 0, v1.PodSucceeded},
	} {
		t.Run(fmt.Sprintf("%s exit %d", tc.policy, tc.code), func(t *testing.T) {
			t.Parallel()
			m := startMany(t)
			d := manyPod(0)
			d.Pod.Spec.RestartPolicy = tc.policy
			ended := func() bool {
				pods := m.status.Pods()
				return len(pods) == 1 && pods[0].Status.Phase == tc.phase && m.srv.Addresses() == 0
			}
			m.add(d)
			m.runsOnce(t, d)
			m.srv.Exit("c0", tc.code)
			m.await(t, "it has ended and its address is free", patience, ended)
			m.settle(t, 500*time.Millisecond)
			m.mustHaveEnded(t)
		})
	}
}

func (m *many) mustHaveEnded(t *testing.T) {
	t.Helper()
	boxes, all := m.srv.Sandboxes(), m.srv.Containers()
	if len(boxes) != 1 || boxes[0].Ready || len(all) != 1 || all[0].Running() {
		t.Errorf("got sandboxes %v, containers %v: want a stopped sandbox and the container that ended", boxes, all)
	}
}

func TestPodThatRanToItsEndIsLeftSoByARestartAndGoesWithItsManifest(t *testing.T) {
	t.Parallel()
	m := startMany(t)
	d := manyPod(0)
	d.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	m.add(d)
	m.runsOnce(t, d)
	m.srv.Exit("c0", 0)
	m.await(t, "its address is free", patience, func() bool { return m.srv.Addresses() == 0 })
	m.settle(t, 500*time.Millisecond)
	m.stop()
	starts := m.srv.Count("RunPodSandbox") + m.srv.Count("CreateContainer")
	m.run(t)
	m.add(d)
	m.await(t, "it has succeeded, still", patience, func() bool {
		pods := m.status.Pods()
		return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
	})
	m.mustHaveEnded(t)
	if n := m.srv.Count("RunPodSandbox") + m.srv.Count("CreateContainer"); n != starts {
		t.Errorf("the restart made %d things", n-starts)
	}
	m.drop(d)
	m.gone(t)
	m.nothingLeft(t)
}
