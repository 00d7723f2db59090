package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent"
	"podd/cri/critest/state"
	"podd/internal/pod"
)

// inBubble plays a script that is written in Go, on a node with podd started
// and the pod shop running.
func inBubble(t *testing.T, play func(t *testing.T, s *scenario)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: map[string][]byte{
			"shop.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: web}]}"),
			"hooked.yaml": []byte("metadata: {name: hooked}\nspec: {initContainers: [{name: log, image: i, restartPolicy: Always}], " +
				"containers: [{name: web, image: i, lifecycle: {postStart: {exec: {command: [x]}}, preStop: {exec: {command: [x]}}}}]}"),
		}}
		defer s.end()
		s.play("start-agent; apply shop.yaml; sleep 1s; expect shop/web running")
		play(t, s)
	})
}

func (s *scenario) uidOf(name string) pod.UID {
	synctest.Wait()
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.report[name].Desired.UID()
}

func (s *scenario) syncsOf(name string) int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Count("Observe " + name)
}

func TestHintOlderThanTheLastSyncIsNotFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		uid := s.uidOf("shop")
		for _, tc := range []struct {
			name string
			age  time.Duration // the last sync's is a second; -1 for no time at all
			want int
		}{
			{"before the last sync", 1100 * time.Millisecond, 0},
			{"after the last sync", 900 * time.Millisecond, 1},
			{"an unknown time", -1, 1},
			{"long before: the clock was set", time.Hour, 1},
			{"the future: the clock was set", -time.Hour, 1},
		} {
			s.podd.agent.Wake(uid, time.Time{})
			time.Sleep(time.Second)
			before := s.syncsOf("shop")
			var at time.Time
			if tc.age != -1 {
				at = time.Now().Add(-tc.age)
			}
			s.podd.agent.Wake(uid, at)
			time.Sleep(time.Second)
			if got := s.syncsOf("shop") - before; got != tc.want {
				t.Errorf("a hint from %s: %d syncs, want %d", tc.name, got, tc.want)
			}
		}
	})
}

func TestManyWakesBeforeASyncAreOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		uid := s.uidOf("shop")
		before := s.syncsOf("shop")
		for range 1000 {
			s.podd.agent.Wake(uid, time.Time{})
		}
		time.Sleep(time.Second)
		// The first may start a sync before the others come, which then cause one more.
		if got := s.syncsOf("shop") - before; got < 1 || got > 2 {
			t.Errorf("a thousand wake-ups: %d syncs, want 1 or 2", got)
		}
	})
}

// TestReportsAreNews: a sync that finds nothing new reports nothing, and starting
// a pod is told in few steps.
func TestReportsAreNews(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		reports := func() int {
			synctest.Wait()
			s.disk.Lock()
			defer s.disk.Unlock()
			return s.reports["shop"]
		}
		if n := reports(); n > 5 {
			t.Errorf("%d reports of a start, want 5 at most", n)
		}
		before := reports()
		for range 10 {
			s.podd.agent.Wake(s.uidOf("shop"), time.Time{})
			time.Sleep(time.Second)
		}
		if n := reports() - before; n != 0 {
			t.Errorf("%d reports of ten syncs that found nothing new, want none", n)
		}
		s.play("fail 1000 RunSandbox shop; exit shop/web code=1; kill-sandbox shop; sleep 10s")
		before = reports()
		s.play("sleep 10m")
		if n := reports() - before; n > 2 {
			t.Errorf("%d reports of a sandbox that fails in the same way for ten minutes, want 2 at most", n)
		}
	})
}

// TestVolumesOfAPodThatRanToItsEndAreUnmounted once in each life of podd, and
// never before its sandbox is stopped.
func TestVolumesOfAPodThatRanToItsEndAreUnmounted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.files["job.yaml"] = []byte("metadata: {name: job}\nspec: {restartPolicy: OnFailure, containers: [{name: a, image: a}, {name: b, image: b}]}")
		s.play("apply job.yaml; sleep 1s; exit job/a code=0; sleep 1s")
		uid := s.uidOf("job")
		released := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			s.disk.Lock()
			defer s.disk.Unlock()
			if s.released[uid] != want || len(s.released) > 1 {
				t.Errorf("%s: released %v, want %d of the job and no other", when, s.released, want)
			}
		}
		released(0, "one container has ended")
		s.play("exit job/b code=1; sleep 1m")
		released(0, "the other has failed")
		s.play("exit job/b code=0; sleep 1m; expect job phase=Succeeded sandbox=false disk")
		released(1, "both have ended")
		s.play("restart-agent; sleep 1m; expect job phase=Succeeded")
		released(2, "podd was restarted")
		s.play("remove job; sleep 1m; expect job disk=false gone")
	})
}

func TestLogsOfARemovedPodStayForAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.play("remove shop; sleep 50s; expect nothing left")
		if s.logsGone("shop") {
			t.Error("the logs went with the pod")
		}
		s.play("sleep 20s")
		if !s.logsGone("shop") {
			t.Error("the logs are still there after more than a minute")
		}
	})
}

func TestLogsOfAPodThatCameBackStay(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.play("remove shop; sleep 10s; apply shop.yaml; sleep 10m; expect shop/web running")
		if s.logsGone("shop") {
			t.Error("the logs of a running pod were removed")
		}
	})
}

func (s *scenario) logsGone(name string) bool {
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.removed[name] > 0
}

func TestHealthySaysWhetherTheSyncLoopAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		a := s.podd.agent
		if err := a.Healthy(t.Context()); err != nil {
			t.Errorf("running: got %v, want nil", err)
		}
		s.play("hang StopContainer shop; remove shop; sleep 1s")
		if err := a.Healthy(t.Context()); err != nil {
			t.Errorf("a pod hangs: got %v, want nil", err)
		}
		s.play("stop-agent")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Healthy(ctx); err == nil {
			t.Error("stopped: got nil, want an error")
		}
	})
}

func TestRunEndsWithItsUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(newFakeRuntime(t))
		c := &conn{fakeRuntime: n.fakeRuntime, dead: make(chan struct{})}
		a := agent.New(agent.Config{
			Parts: agent.Parts{Observer: c, Inputs: inputs{n}, Sandboxes: c, Containers: c, Images: n, Volumes: disk{n}, Cgroups: n, Files: n}, Logs: n, Status: n, Events: n,
			Sources: n.sources, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
		updates := make(chan pod.Update)
		close(updates)
		if err := a.Run(t.Context(), updates); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		time.Sleep(time.Second) // the runtime goes on with a call that Run gave up
	})
}

// TestStopIsQuickWhateverPodsDo: podd's own end waits for no container's grace
// period, and no more than five seconds for a create.
func TestStopIsQuickWhateverPodsDo(t *testing.T) {
	for _, tc := range []struct {
		script string
		most   time.Duration
	}{
		{"sleep 1s", 0},
		{"stubborn shop; remove shop; sleep 1s", time.Second},
		{"hang RunSandbox shop; kill-sandbox shop; sleep 3s", 6 * time.Second},
		{"hang StopContainer shop; remove shop; sleep 1s", time.Second},
		{"hang StopContainer shop; remove shop; sleep 1m; expect shop aborting=1", time.Second},
		{"hang CreateContainer shop; exit shop/web code=1; sleep 1s", 6 * time.Second},
		{"pull shop 1h; exit shop/web code=1; sleep 1s", time.Second},
		{"stop-runtime; remove shop; sleep 1s", time.Second},
		{"hook hooked/web poststart hangs; apply hooked.yaml; sleep 1s", 0},
		{"hook hooked/web prestop hangs; apply hooked.yaml; sleep 1s; remove hooked; sleep 1s", 0},
		{"stubborn hooked; apply hooked.yaml; sleep 1s; remove hooked; sleep 1s", 0},
	} {
		t.Run(tc.script, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *scenario) {
				s.play(tc.script)
				began := time.Now()
				s.play("stop-agent")
				if took := time.Since(began); took > tc.most {
					t.Errorf("podd stopped after %v, want at most %v", took, tc.most)
				}
			})
		})
	}
}

// TestBurstStartsNoMoreSandboxesAtATimeThanAllowed: the width is four.
func TestBurstStartsNoMoreSandboxesAtATimeThanAllowed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		u := pod.Update{Op: pod.OpAdd, Source: pod.SourceHTTP}
		for i := range 40 {
			name := fmt.Sprintf("burst%d", i)
			u.Pods = append(u.Pods, &pod.Desired{Source: pod.SourceHTTP, Pod: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: pod.UID(name)},
				Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web"}}},
			}})
		}
		s.send(u)
		time.Sleep(20 * callTime * 40 / 4 * 2) // twice what ten batches of four take
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.starting.most > 4 {
			t.Errorf("%d sandboxes were being started at a time, want at most 4", s.starting.most)
		}
		for i := range 40 {
			if k := s.newest(fmt.Sprintf("burst%d/web", i)); k == nil || k.State != state.Running {
				t.Errorf("burst%d does not run", i)
			}
		}
	})
}

// TestOfPodsThatWentWhilePoddWasDownNoProbesAreKept, once all sources have said what they
// desire.
func TestOfPodsThatWentWhilePoddWasDownNoProbesAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		retained := func() map[pod.UID]bool {
			s.prober.mu.Lock()
			defer s.prober.mu.Unlock()
			return s.prober.retained
		}
		s.files["blog.yaml"] = []byte("metadata: {name: blog}\nspec: {containers: [{name: web, image: web}]}")
		s.play("apply blog.yaml; sleep 1s; stop-agent; vanish shop; remove shop; start-agent; sleep 1s")
		if got := retained(); got != nil {
			t.Errorf("before the last source spoke: Retain was called with %v", got)
		}
		s.play("speak http; sleep 1s")
		got := slices.Collect(maps.Keys(retained()))
		if len(got) != 1 || !strings.HasPrefix(string(got[0]), "blog-") {
			t.Errorf("Retain was called with %v, want the blog alone", got)
		}
	})
}
