package agent_test

import (
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// followed notes which versions of pods volumes are told of.
type followed struct {
	noVolumes
	mu       sync.Mutex
	pods     map[pod.UID]*v1.Pod
	stopping map[pod.UID]bool
}

func (f *followed) Stopping(uid pod.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping == nil {
		f.stopping = map[pod.UID]bool{}
	}
	f.stopping[uid] = true
}

func (f *followed) stops(d *pod.Desired) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopping[d.UID()]
}

func (f *followed) Follow(p *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[p.UID] = p
}

func (f *followed) has(d *pod.Desired) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[d.UID()]
	return p != nil && p.Labels["version"] == d.Pod.Labels["version"]
}

// The volumes of a pod that an earlier podd started would otherwise follow
// nothing until one of its containers starts again.
func TestVolumesFollowThePodsThatRunAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	v := &followed{pods: map[pod.UID]*v1.Pod{}}
	with := func(c *agent.Config) { c.Volumes = v }
	m := startMany(t, with)
	d := manyPod(0)
	m.add(d)
	m.runsOnce(t, d)
	m.await(t, "volumes follow it", patience, func() bool { return v.has(d) })
	m.stop()
	v.mu.Lock()
	clear(v.pods)
	v.mu.Unlock()
	m.run(t, with)
	m.add(d)
	m.await(t, "volumes follow it again", patience, func() bool { return v.has(d) })

	next := *d
	next.Pod = d.Pod.DeepCopy()
	next.Pod.Labels = map[string]string{"version": "2"}
	m.updates <- pod.Update{Op: pod.OpUpdate, Source: pod.SourceFile, Pods: []*pod.Desired{&next}}
	m.await(t, "volumes follow its new labels", patience, func() bool { return v.has(&next) })
}

func TestVolumesDoNotFollowAPodThatHasEnded(t *testing.T) {
	t.Parallel()
	v := &followed{pods: map[pod.UID]*v1.Pod{}}
	with := func(c *agent.Config) { c.Volumes = v }
	m := startMany(t, with)
	d := manyPod(0)
	d.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	m.add(d)
	m.runsOnce(t, d)
	m.srv.Exit("c0", 0)
	m.await(t, "its address is free", patience, func() bool { return m.srv.Addresses() == 0 })
	m.settle(t, 500*time.Millisecond)
	m.stop()
	v.mu.Lock()
	clear(v.pods)
	v.mu.Unlock()
	m.run(t, with)
	m.add(d)
	m.await(t, "it has succeeded, still", patience, func() bool {
		pods := m.status.Pods()
		return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
	})
	if v.has(d) {
		t.Error("its volumes were asked to follow it")
	}
}

// Objects that are removed together with their pod go as soon as the sync loop has
// applied the pod's removal: the pod must not miss them.
func TestVolumesAreToldThatTheirPodStopsBeforeTheNextUpdateIsTaken(t *testing.T) {
	t.Parallel()
	v := &followed{pods: map[pod.UID]*v1.Pod{}}
	m := startMany(t, func(c *agent.Config) { c.Volumes = v })
	for i := range 2 {
		d := manyPod(i)
		m.add(d)
		m.runsOnce(t, d)
		m.await(t, "volumes follow it", patience, func() bool { return v.has(d) })
		if v.stops(d) {
			t.Fatal("it is not being stopped")
		}
		if i == 0 {
			m.updates <- pod.Update{Op: pod.OpRemove, Source: pod.SourceFile, Pods: []*pod.Desired{d}}
			m.updates <- pod.Update{Op: pod.OpRemove, Source: pod.SourceFile}
		} else {
			m.agent.End(d.UID(), pod.Termination{Reason: pod.ReasonEvicted})
		}
		if !v.stops(d) {
			t.Errorf("pod %d: its volumes were not told", i)
		}
	}
}
