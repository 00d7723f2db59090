package agent_test

import (
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// A podd that is restarted together with its runtime tells the apiserver nothing of pods that
// it has not looked at yet, and does not count one as gone.
func TestWhileTheRuntimeHasNotAnsweredTheClusterHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newFakeAPI(t), filepath.Join(t.TempDir(), "pods")
		for _, name := range []string{"stays", "goes"} {
			api.create(name, "")
		}
		first := boot(t, api, dir)
		time.Sleep(time.Minute)
		first.halt()
		api.did()
		ready := api.pod("stays").Status

		answers := make(chan struct{})
		c := first.join(api, dir, answers)
		defer c.stop()
		time.Sleep(30 * time.Second)
		api.edit("goes", func(p *v1.Pod) {
			now, grace := metav1.Now(), int64(30)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
		})
		time.Sleep(30 * time.Second)
		if did := api.did(); did["patch stays"]+did["patch goes"]+did["delete goes"] != 0 {
			t.Errorf("without the runtime: got %v, want no word of the pods", did)
		}
		close(answers)
		began := time.Now()
		for api.pod("goes") != nil && time.Since(began) < time.Hour {
			time.Sleep(100 * time.Millisecond)
			if _, runs := c.running()["goes"]; api.pod("goes") == nil && runs {
				t.Error("the object of a pod is gone that runs")
			}
		}
		time.Sleep(time.Minute)
		if got, want := c.running(), map[string]int{"stays": 0}; !maps.Equal(got, want) || api.pod("goes") != nil {
			t.Errorf("%v run, want %v", got, want)
		}
		if did, now := api.did(), api.pod("stays").Status; did["patch stays"] != 0 || !now.StartTime.Equal(ready.StartTime) {
			t.Errorf("a pod that ran on: got %v, started at %v, want it unchanged, %v", did, now.StartTime, ready.StartTime)
		}
	})
}

// A pod that somebody else ends in the apiserver ends here, too: its controller replaces it.
func TestAPodThatTheApiserverShowsAsEndedIsStopped(t *testing.T) {
	for name, reason := range map[string]string{"with a reason": "Preempted", "without": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFakeAPI(t)
				api.create("failed", "")
				api.create("stays", "")
				c := boot(t, api, filepath.Join(t.TempDir(), "pods"))
				defer c.stop()
				time.Sleep(time.Minute)
				api.edit("failed", func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, reason })
				time.Sleep(2 * time.Minute)
				if got, want := c.running(), map[string]int{"stays": 0}; !maps.Equal(got, want) {
					t.Errorf("%v run, want %v", got, want)
				}
				if p := api.pod("failed"); p == nil || p.Status.Phase != v1.PodFailed || p.Status.Reason != reason {
					t.Errorf("got %+v", p)
				}
			})
		})
	}
}

// What was rejected is not asked about again after a restart of podd, which it would be in
// the place of pods that are new.
func TestAPodThatWasRejectedIsNotAdmittedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newFakeAPI(t), filepath.Join(t.TempDir(), "pods")
		api.create("rejected", "")
		api.edit("rejected", func(p *v1.Pod) {
			p.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't have enough resource: cpu"}
		})
		c := boot(t, api, dir)
		defer c.stop()
		time.Sleep(time.Minute)
		c.gate.mu.Lock()
		if n := c.gate.asked["rejected"]; n > 0 {
			t.Errorf("admission was asked %d times about a pod that has ended", n)
		}
		c.gate.mu.Unlock()
		if p := api.pod("rejected"); p.Status.Reason != "OutOfcpu" || p.Status.Phase != v1.PodFailed || len(c.running()) > 0 {
			t.Errorf("got %+v", p.Status)
		}
		c.disk.Lock()
		defer c.disk.Unlock()
		if n := c.events["rejected OutOfcpu"]; n > 0 {
			t.Errorf("got %d events", n)
		}
	})
}

// A pod that has not got as far as a sandbox began when it was first taken up, also for its
// deadline.
func TestTheDeadlineOfAPodThatWaitsGoesOnAcrossARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newFakeAPI(t), filepath.Join(t.TempDir(), "pods")
		api.create("late", "")
		api.edit("late", func(p *v1.Pod) {
			deadline, began := int64(600), metav1.NewTime(time.Now().Add(-9*time.Minute))
			p.Spec.ActiveDeadlineSeconds, p.Status.StartTime = &deadline, &began
		})
		c := boot(t, api, dir)
		defer c.stop()
		time.Sleep(2 * time.Minute)
		if p := api.pod("late"); p.Status.Phase != v1.PodFailed || p.Status.Reason != pod.ReasonDeadlineExceeded {
			t.Errorf("got %s, %s", p.Status.Phase, p.Status.Reason)
		}
	})
}
