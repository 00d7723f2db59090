package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podd/agent"
)

// restartStories are what podd is killed in the middle of.
var restartStories = []struct {
	name string
	// before is played first, then during begins, and podd is killed at some
	// moment of the time that it takes.
	before, during string
	takes          time.Duration
	// after must hold in the end.
	after string
}{
	{
		"start", "", "apply shop.yaml", 4 * time.Second,
		"sleep 1m; expect shop/prep started=1; expect shop/log running started=1; expect shop/web running started=1; expect shop/side running started=1; expect shop phase=Running",
	}, {
		"end", "apply shop.yaml; sleep 1m", "remove shop", 4 * time.Second,
		"speak file; sleep 1m; expect nothing left; expect shop/web started=1",
	}, {
		"end of an apiserver's pod", "apply shop.yaml api; sleep 1m; expect shop/web running", "delete shop grace=10s", 4 * time.Second,
		"speak api; sleep 1m; expect nothing left; expect shop/web started=1",
	}, {
		// It takes one sync until the decision itself is checkpointed.
		"eviction", "apply shop.yaml; sleep 1m", "end shop Evicted; sleep 20ms", 4 * time.Second,
		"sleep 1m; expect shop phase=Failed reason=Evicted sandbox=false; expect shop/web started=1 running=false; expect shop/log running=false; remove shop; sleep 1m; expect nothing left",
	}, {
		"deadline", "apply job.yaml; sleep 58s", "", 5 * time.Second,
		"sleep 1m; expect job phase=Failed reason=DeadlineExceeded sandbox=false; expect job/web started=1; remove job; sleep 1m; expect nothing left",
	}, {
		"restart of all", "apply all.yaml; sleep 1m", "exit all/web code=42", 2 * time.Second,
		"sleep 1m; expect all/web running started=2; expect all/side running started=2; expect all/log running started=2; expect all RunSandbox=1",
	}, {
		"crash", "apply shop.yaml; sleep 1m", "exit shop/web code=1", time.Second,
		"sleep 1m; expect shop/web running started=2 restarts=1; expect shop/side started=1",
	}, {
		"back-off", "apply shop.yaml; sleep 1m; exit shop/web code=1; sleep 5s", "exit shop/web code=1", 12 * time.Second,
		"sleep 1m; expect shop/web running started=3; expect shop/side started=1",
	}, {
		"failed liveness probe", "apply shop.yaml; sleep 1m", "probe shop/side live=fail; sleep 2020ms; probe shop/side live=ok", 2 * time.Second,
		"sleep 1m; expect shop/side running started=2; expect shop/web started=1",
	}, {
		"new sandbox", "apply shop.yaml; sleep 1m", "kill-sandbox shop", 4 * time.Second,
		"sleep 1m; expect shop/web running started=2; expect shop/prep started=2; expect shop/log running started=2; expect shop RunSandbox=2",
	},
}

// TestPoddKilledAtAnyMomentLosesNothing: whatever it was in the middle of, the
// next podd brings it to the same end, and starts nothing twice.
func TestPoddKilledAtAnyMomentLosesNothing(t *testing.T) {
	for _, story := range restartStories {
		moments := 60
		if testing.Short() {
			moments = 10
		}
		for i := range moments {
			at := story.takes * time.Duration(i) / time.Duration(moments)
			t.Run(fmt.Sprintf("%s after %v", story.name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: restartFiles}
					defer s.end()
					s.play("dies shop/prep code=0 after=1s; hook shop/web prestop 500ms; hook shop/log poststart 300ms; start-agent; speak file; speak http")
					s.play(story.before)
					s.play(story.during)
					time.Sleep(at)
					s.play("kill-agent; sleep 100ms; start-agent")
					s.play(story.after)
				})
			})
		}
	}
}

var restartFiles = map[string][]byte{
	"shop.yaml": []byte(`metadata: {name: shop}
spec:
  initContainers: [{name: prep, image: i}, {name: log, image: i, restartPolicy: Always, lifecycle: {postStart: {exec: {command: [x]}}}}]
  containers:
  - {name: web, image: i, lifecycle: {preStop: {exec: {command: [x]}}}}
  - {name: side, image: i, livenessProbe: {periodSeconds: 1, failureThreshold: 3, exec: {command: [x]}}}`),
	"job.yaml": []byte("metadata: {name: job}\nspec: {activeDeadlineSeconds: 60, containers: [{name: web, image: i}]}"),
	"all.yaml": []byte(`metadata: {name: all}
spec:
  initContainers: [{name: log, image: i, restartPolicy: Always}]
  containers:
  - {name: web, image: i, restartPolicy: Always, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}
  - {name: side, image: i}`),
}

// TestANoteOfAnEndThatCannotBeReadIsForgotten: the pod starts again, and the
// note is gone; what is no note of podd's goes with it.
func TestANoteOfAnEndThatCannotBeReadIsForgotten(t *testing.T) {
	for _, text := range []string{"", "{", "null", `{"uid": "another", "Reason": "Evicted"}`, `{"uid": 7}`} {
		inBubble(t, func(t *testing.T, s *scenario) {
			note := filepath.Join(s.ended, string(s.uidOf("shop"))+".json")
			s.play("end shop Evicted; sleep 2s; expect shop phase=Failed reason=Evicted; stop-agent")
			if err := os.WriteFile(note, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.play("start-agent; sleep 2s; expect shop/web running; expect shop phase=Running reason=; remove shop; sleep 1m; expect nothing left")
		})
	}
}

// TestATerminationThatCannotBeCheckpointedIsCarriedOut: a full disk costs only the memory of it.
func TestATerminationThatCannotBeCheckpointedIsCarriedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.play("stop-agent")
		s.ended = filepath.Join(s.ended, "file", "below")
		if err := os.WriteFile(filepath.Dir(s.ended), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.play("start-agent; sleep 1s; end shop Evicted; sleep 2s; expect shop phase=Failed reason=Evicted; remove shop; sleep 1m; expect shop gone known=false")
	})
}

// TestLogAndStatusTellOneRestartCount: also where the runtime has lost a pod whose
// logs are left.
func TestLogAndStatusTellOneRestartCount(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		var log syncBuffer
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		}
		told := func(restarts int32, script string) {
			t.Helper()
			log.take()
			s.play(script)
			synctest.Wait()
			s.disk.Lock()
			defer s.disk.Unlock()
			for _, cs := range s.status["shop"].ContainerStatuses {
				if cs.RestartCount != restarts {
					t.Errorf("%s: status of %s: got %d restarts, want %d", script, cs.Name, cs.RestartCount, restarts)
				}
			}
			text := log.take()
			if want := fmt.Sprintf("msg=\"container started\" pod=default/shop uid=%s container=web restarts=%d", s.taken["shop"], restarts); !strings.Contains(text, want) {
				t.Errorf("%s: the log does not say %s:\n%s", script, want, text)
			}
		}
		told(1, "stop-agent; vanish shop; start-agent; sleep 2s; expect shop/web running restarts=1")
		told(2, "vanish shop; restart-agent; sleep 2s; expect shop/web running restarts=2")
	})
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was written since the last time.
func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
