package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// watcher watches the pods that have the volume limited, and finds what exceed
// tells it.
type watcher struct {
	mu      sync.Mutex
	watched map[string]chan pod.Eviction // by pod name, as long as somebody watches
	begun   map[string]int
}

func (*watcher) Limited(p *v1.Pod) bool { return len(p.Spec.Volumes) > 0 }

func (w *watcher) Watch(ctx context.Context, p *v1.Pod) (pod.Eviction, bool) {
	found := make(chan pod.Eviction)
	w.mu.Lock()
	w.begun[p.Name]++
	w.watched[p.Name] = found
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, p.Name)
	}()
	select {
	case e := <-found:
		return e, true
	case <-ctx.Done():
		return pod.Eviction{}, false
	}
}

func (w *watcher) watches(name string) chan pod.Eviction {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched[name]
}

func limitedPod(name, more string) []byte {
	return []byte("metadata: {name: " + name + "}\nspec: {" + more + "containers: [{name: web, image: i}], volumes: [{name: data, emptyDir: {sizeLimit: 10Mi}}]}")
}

// TestAPodOverItsLimitIsEvictedForGood, with a second between stop signal and
// SIGKILL, and not again by the podd after this one.
func TestAPodOverItsLimitIsEvictedForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		w, reg := &watcher{watched: map[string]chan pod.Eviction{}, begun: map[string]int{}}, prometheus.NewRegistry()
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			reg = prometheus.NewRegistry()
			cfg.Limits, cfg.Metrics = w, reg
		}
		s.files["data.yaml"], s.files["system.yaml"] = limitedPod("data", ""), limitedPod("system", "priority: 2000000000, ")
		s.play("restart-agent; apply data.yaml; apply system.yaml; sleep 1s; expect data/web running; expect system/web running")
		if w.watches("shop") != nil || w.begun["shop"] != 0 {
			t.Error("a pod without a limit is watched")
		}
		s.play("exit data/web code=1; sleep 1m; expect data/web running started=2; restart-agent; sleep 1s")
		if w.watches("data") == nil || w.begun["data"] != 2 {
			t.Fatalf("watched %d times, want once by each podd", w.begun["data"])
		}
		second := time.Second
		eviction := pod.Eviction{Signal: "emptydirfs.limit", Message: "too much", Grace: &second}
		w.watches("system") <- eviction
		w.watches("data") <- eviction
		s.play("sleep 2s; expect data phase=Failed reason=Evicted event:Evicted=1; expect data/web running=false started=2; expect system phase=Running event:Evicted=0; expect system/web started=1")
		if w.watches("data") != nil {
			t.Error("a pod that has ended is still watched")
		}
		if got, err := testutil.GatherAndCount(reg, "kubelet_evictions"); err != nil || got != 1 {
			t.Errorf("got %d series of evictions (%v), want one", got, err)
		}
		if !s.podd.agent.Released(s.uidOf("data")) || s.podd.agent.Released(s.uidOf("system")) || !s.podd.agent.Released("nobody") {
			t.Error("what was released is not what was evicted")
		}
		if uid := string(s.uidOf("data")); s.count("discarded", uid) == 0 {
			t.Error("the node did not get the space back")
		}
		s.play("end shop DeadlineExceeded; sleep 1m; expect shop phase=Failed")
		if uid := string(s.uidOf("shop")); s.count("discarded", uid) != 0 {
			t.Error("a pod that was ended for another reason has lost its files")
		}
		s.play("restart-agent; sleep 1h; expect data phase=Failed reason=Evicted event:Evicted=1; expect data/web started=2; remove data; sleep 1s; expect data gone")
		if w.watches("data") != nil || w.begun["data"] != 2 {
			t.Errorf("watched %d times, want none after its end", w.begun["data"])
		}
		// Nobody watches what is removed.
		s.play("apply data.yaml; sleep 1s; expect data/web running; remove data; sleep 1s")
		if w.watches("data") != nil {
			t.Error("a removed pod is still watched")
		}
		// One that is ending anyway ends sooner, once, and is not counted.
		s.play("apply data.yaml; sleep 1s; expect data/web running")
		uid := s.uidOf("data")
		minute := time.Minute
		s.podd.agent.End(uid, pod.Termination{Reason: pod.ReasonDeadlineExceeded, Grace: &minute})
		if !s.podd.agent.Evict(uid, eviction) || s.podd.agent.Evict(uid, eviction) {
			t.Error("a pod that was ending did not end sooner once")
		}
		s.play("sleep 2s; expect data phase=Failed reason=DeadlineExceeded; remove data; sleep 1s; expect data gone")
		if got, err := testutil.GatherAndCount(reg, "kubelet_evictions"); err != nil || got != 0 {
			t.Errorf("got %d series of evictions (%v) of this podd, want none", got, err)
		}
		if s.podd.agent.Evict("nobody", eviction) {
			t.Error("a pod that nobody knows was evicted")
		}
	})
}
