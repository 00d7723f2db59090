package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"podd/cri/critest/state"
	"podd/internal/pod"
)

func plainPod(name string) []byte {
	return []byte("metadata: {name: " + name + "}\nspec: {containers: [{name: main, image: i}]}")
}

// A podd that is started without its apiserver has only some of the pods that the apiserver
// had given: one that it was given in the last second was not stored yet.
func TestWithStoredPodsNothingOfTheirSourceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(newFakeRuntime(t))
		n.sources = []pod.Source{pod.SourceAPIServer}
		s := &scenario{node: n, began: time.Now(), files: map[string][]byte{"a.yaml": plainPod("a"), "b.yaml": plainPod("b"), "c.yaml": plainPod("c")}}
		defer s.end()
		s.play("start-agent; apply a.yaml b.yaml c.yaml api; sleep 10s; expect a/main running; expect b/main running; expect c/main running; kill-agent")
		wants := n.wants[pod.SourceAPIServer]
		n.spoke[pod.SourceAPIServer] = false
		s.play("start-agent")
		n.send(pod.Update{Op: pod.OpAdd, Source: pod.SourceAPIServer, Pods: []*pod.Desired{wants["a"], wants["b"]}, Provisional: true})
		s.play("sleep 1h")
		running := func() (names string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, name := range []string{"a", "b", "c"} {
				for _, k := range n.rt.Containers() {
					if k.Sandbox.Pod == name && k.State == state.Running {
						names += name
					}
				}
			}
			return names
		}
		if got := running(); got != "abc" {
			t.Errorf("stored pods only: %q run, want all", got)
		}
		// The apiserver is back: a was deleted, and c is new to this podd.
		n.send(pod.Update{Op: pod.OpRemove, Source: pod.SourceAPIServer, Pods: []*pod.Desired{wants["a"]}, Provisional: true})
		synctest.Wait()
		n.send(pod.Update{Op: pod.OpAdd, Source: pod.SourceAPIServer, Pods: []*pod.Desired{wants["c"]}})
		s.play("sleep 10m")
		if got := running(); got != "bc" {
			t.Errorf("after the whole set: %q run, want b and c", got)
		}
		for name, times := range n.started {
			if times != 1 {
				t.Errorf("%s was started %d times", name, times)
			}
		}
	})
}
