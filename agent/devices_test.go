package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// deviceStock has one device for every pod, and answers as it is told.
type deviceStock struct {
	mu       sync.Mutex
	answer   pod.ContainerDevices
	err      error
	health   v1.ResourceHealthStatus
	released map[pod.UID]int
	retained []map[pod.UID]bool
	verdict  pod.Verdict // of admission
}

func (s *deviceStock) Container(context.Context, *v1.Pod, *v1.Container) (pod.ContainerDevices, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer, s.err
}

func (s *deviceStock) Health(pod.UID) map[string][]v1.ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health == "" {
		return nil
	}
	return map[string][]v1.ResourceStatus{"web": {{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: s.health}}}}}
}

func (s *deviceStock) Release(uid pod.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[uid]++
}

func (s *deviceStock) Retain(keep map[pod.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retained = append(s.retained, keep)
}

func (s *deviceStock) Admit(*v1.Pod, []*v1.Pod) pod.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}

func (*deviceStock) CountRejection(string) {}

func (s *deviceStock) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func withDevices(t *testing.T, play func(t *testing.T, s *scenario, d *deviceStock)) {
	inBubble(t, func(t *testing.T, s *scenario) {
		d := &deviceStock{answer: pod.ContainerDevices{Ready: true}, released: map[pod.UID]int{}}
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) { cfg.Devices, cfg.Admitter = d, d }
		s.files["gpu.yaml"] = []byte("metadata: {name: gpu}\nspec: {containers: [{name: web, image: web}]}")
		s.play("restart-agent; speak http; sleep 1s")
		play(t, s, d)
	})
}

func (s *scenario) reported(name string) pod.Report {
	synctest.Wait()
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.report[name]
}

// What runs and what is desired keeps its devices; what was removed while no podd ran does not.
func TestDevicesOfPodsThatAreGoneAreReleasedAtTheStart(t *testing.T) {
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		uid := s.uidOf("shop")
		d.set(func() {
			if len(d.retained) != 1 || !d.retained[0][uid] || len(d.retained[0]) != 1 {
				t.Errorf("retained %v, want those of shop, once", d.retained)
			}
		})
	})
}

func TestAPodWaitsForItsAdmissionWhileDevicesAreAllocated(t *testing.T) {
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		d.set(func() { d.verdict = pod.Verdict{PendingReason: "waiting for the plugin"} })
		s.play("apply gpu.yaml; sleep 1m")
		if r := s.reported("gpu"); r.Failed || r.Waiting["web"].Message != "waiting for the plugin" {
			t.Errorf("got %+v", r)
		}
		d.set(func() { d.verdict = pod.Verdict{} })
		s.podd.agent.RetryAdmission()
		s.play("sleep 1s; expect gpu/web running")
		// One that is rejected in the end is Failed, and admitted later.
		d.set(func() { d.verdict = pod.Verdict{Reason: "UnexpectedAdmissionError", Message: "no gpu"} })
		s.play("remove gpu; sleep 1m; apply gpu.yaml; sleep 1s")
		if r := s.reported("gpu"); !r.Failed || r.Reason != "UnexpectedAdmissionError" || r.Message != "Pod was rejected: no gpu" {
			t.Errorf("got %+v", r)
		}
		d.set(func() { d.verdict = pod.Verdict{} })
		s.podd.agent.RetryAdmission()
		s.play("sleep 1s; expect gpu/web running")
	})
}

// A pod that was removed before it was admitted has its devices released, too.
func TestAPodThatIsRemovedWhileItWaitsGivesItsDevicesBack(t *testing.T) {
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		d.set(func() { d.verdict = pod.Verdict{PendingReason: "waiting for the plugin"} })
		s.play("apply gpu.yaml; sleep 1s")
		uid := s.uidOf("gpu")
		s.play("remove gpu; sleep 1m")
		d.set(func() {
			if d.released[uid] == 0 {
				t.Error("its devices are not released")
			}
		})
	})
}

func TestAContainerStartsWhenItsDevicesAreReady(t *testing.T) {
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		d.set(func() {
			d.answer = pod.ContainerDevices{Reason: "CreateContainerConfigError", Message: "no healthy devices present"}
		})
		s.play("apply gpu.yaml; sleep 1h")
		if w := s.reported("gpu").Waiting["web"]; w.Reason != "CreateContainerConfigError" || w.Message != "no healthy devices present" {
			t.Errorf("got %+v", w)
		}
		uid := s.uidOf("gpu")
		d.set(func() { d.answer = pod.ContainerDevices{Ready: true} })
		began := time.Now()
		s.podd.agent.Wake(uid, time.Time{})
		s.play("sleep 1s; expect gpu/web running")
		if time.Since(began) > 2*time.Second {
			t.Error("it was not started at once")
		}
		// An error of the plugin has a back-off.
		d.set(func() { d.err = errors.New("the plugin says no") })
		s.play("exit gpu/web code=1; sleep 5m")
		if w := s.reported("gpu").Waiting["web"]; w.Reason != "CreateContainerConfigError" || w.Message != "the plugin says no" {
			t.Errorf("got %+v", w)
		}
		d.set(func() { d.err = nil })
		s.play("sleep 5m; expect gpu/web running")
	})
}

func TestTheHealthOfDevicesIsReported(t *testing.T) {
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		s.play("apply gpu.yaml; sleep 1s")
		uid := s.uidOf("gpu")
		for _, health := range []v1.ResourceHealthStatus{v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnhealthy, v1.ResourceHealthStatusUnknown} {
			d.set(func() { d.health = health })
			s.podd.agent.Wake(uid, time.Time{})
			s.play("sleep 1s")
			if got := s.reported("gpu").Devices["web"]; len(got) != 1 || got[0].Resources[0].Health != health {
				t.Errorf("got %v, want %s", got, health)
			}
		}
	})
}

// Devices are free when nothing of the pod runs any more, and not before.
func TestDevicesAreFreeWhenAPodHasEnded(t *testing.T) {
	for _, policy := range []string{"Never", "Always"} {
		withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
			s.files["gpu.yaml"] = fmt.Appendf(nil, "metadata: {name: gpu}\nspec: {restartPolicy: %s, containers: [{name: web, image: web}]}", policy)
			s.play("apply gpu.yaml; sleep 1s")
			uid := s.uidOf("gpu")
			released := func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.released[uid] }
			s.play("exit gpu/web code=1; sleep 1m")
			if ended := policy == "Never"; (released() > 0) != ended {
				t.Errorf("%s: after its container has ended: released %d times", policy, released())
			}
			s.play("remove gpu; sleep 1m")
			if released() == 0 {
				t.Errorf("%s: after it was removed: not released", policy)
			}
		})
	}
}
