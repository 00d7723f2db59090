package apiserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/apiserver"
)

// script is a Lister that says what a test says.
type script chan func(set func([]*v1.Pod, error))

func (s script) FollowPods(ctx context.Context, _ string, set func([]*v1.Pod, error)) {
	for {
		select {
		case say := <-s:
			say(set)
		case <-ctx.Done():
			return
		}
	}
}

func (s script) pods(pods ...*v1.Pod) {
	s <- func(set func([]*v1.Pod, error)) { set(pods, nil) }
}

func (s script) fails(text string) {
	s <- func(set func([]*v1.Pod, error)) { set(nil, errors.New(text)) }
}

func bound(name, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID("uid-" + name), ResourceVersion: version}}
}

func mirror(p *v1.Pod) *v1.Pod {
	p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
	return p
}

// following runs a Source in a bubble; next is its next Snapshot.
func following(t *testing.T, run func(say script, next func() podconfig.Snapshot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		say, out := make(script), make(chan podconfig.Snapshot)
		s := apiserver.New(apiserver.Config{Lister: say, NodeName: "node0", Server: "https://example"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, out) }()
		run(say, func() podconfig.Snapshot {
			select {
			case snap := <-out:
				return snap
			case <-time.After(time.Second):
				t.Fatal("no snapshot")
				return podconfig.Snapshot{}
			}
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

func TestPodsAreTheSamePointersUntilTheyChange(t *testing.T) {
	following(t, func(say script, next func() podconfig.Snapshot) {
		say.pods(bound("a", "1"), bound("b", "2"))
		first := next()
		if len(first.Pods) != 2 || first.Incomplete || first.Pods[0].Source != pod.SourceAPIServer || first.Pods[0].Origin != "https://example" {
			t.Fatalf("got %+v", first)
		}
		changed := bound("b", "3")
		changed.Labels = map[string]string{"tier": "front"}
		say.pods(bound("a", "1"), changed)
		second := next()
		if second.Pods[0] != first.Pods[0] {
			t.Error("a pod that did not change is another pointer")
		}
		if second.Pods[1] == first.Pods[1] || second.Pods[1].Pod.ResourceVersion != "3" || second.Pods[1].Seen != first.Pods[1].Seen {
			t.Errorf("got %+v of the one that changed", second.Pods[1])
		}
		own := changed.DeepCopy()
		own.ResourceVersion, own.Status.Phase = "4", v1.PodRunning
		own.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		say.pods(own)
		if third := next(); len(third.Pods) != 1 || third.Pods[0] != second.Pods[1] {
			t.Errorf("after podd's own status: got %+v", third)
		}
		theirs := own.DeepCopy()
		theirs.ResourceVersion = "5"
		theirs.Status.Conditions = append(theirs.Status.Conditions, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue})
		say.pods(theirs)
		if fourth := next(); fourth.Pods[0] == second.Pods[1] || len(fourth.Pods[0].Pod.Status.Conditions) != 2 {
			t.Errorf("after another's condition: got %+v", fourth.Pods[0])
		}
	})
}

func TestMirrorPodsAreNotRun(t *testing.T) {
	following(t, func(say script, next func() podconfig.Snapshot) {
		say.pods(mirror(bound("static", "1")))
		if snap := next(); len(snap.Pods) != 0 || snap.Incomplete {
			t.Errorf("got %+v", snap)
		}
	})
}

func TestWhileTheApiserverIsAwayItsPodsStay(t *testing.T) {
	following(t, func(say script, next func() podconfig.Snapshot) {
		say.fails("connection refused")
		if snap := next(); !snap.Incomplete || len(snap.Problems) != 1 || snap.Problems[0].LastGoodInUse {
			t.Errorf("never reached: got %+v", snap)
		}
		say.pods(bound("a", "1"))
		if snap := next(); snap.Incomplete || len(snap.Problems) != 0 || len(snap.Pods) != 1 {
			t.Errorf("reached: got %+v", snap)
		}
		say.fails("unauthorized")
		if snap := next(); snap.Incomplete || len(snap.Pods) != 1 || len(snap.Problems) != 1 || !snap.Problems[0].LastGoodInUse {
			t.Errorf("away again: got %+v", snap)
		}
	})
}

// The list of problems tells one from another by its message, and logs what comes and goes.
func TestAnApiserverThatBreaksOffEachStreamIsOneProblem(t *testing.T) {
	for want, attempts := range map[string][]string{
		"list: stream error: INTERNAL_ERROR; received from peer": {
			"list: stream error: stream ID 7; INTERNAL_ERROR; received from peer",
			"list: stream error: stream ID 113; INTERNAL_ERROR; received from peer",
		},
		"read tcp 10.0.0.9:6443: connection reset by peer": {
			"read tcp 10.0.0.1:40112->10.0.0.9:6443: connection reset by peer",
			"read tcp 10.0.0.1:40116->10.0.0.9:6443: connection reset by peer",
		},
		"write tcp [fd00::9]:6443: broken pipe": {
			"write tcp [fd00::1]:40112->[fd00::9]:6443: broken pipe",
			"write tcp [fd00::1]:51000->[fd00::9]:6443: broken pipe",
		},
	} {
		following(t, func(say script, next func() podconfig.Snapshot) {
			for _, attempt := range attempts {
				say.fails(attempt)
				if got := next().Problems[0].Message; got != "cannot follow the pods of this node: "+want {
					t.Errorf("after %q: got %q, want the end %q", attempt, got, want)
				}
			}
		})
	}
}

// TestPodsWhoseNamesAreNoNamesAreRejected: podd makes paths of them.
func TestPodsWhoseNamesAreNoNamesAreRejected(t *testing.T) {
	for what, change := range map[string]func(p *v1.Pod){
		"name":           func(p *v1.Pod) { p.Name = "../../../../tmp/x" },
		"no name":        func(p *v1.Pod) { p.Name = "" },
		"namespace":      func(p *v1.Pod) { p.Namespace = ".." },
		"UID":            func(p *v1.Pod) { p.UID = "../x" },
		"no UID":         func(p *v1.Pod) { p.UID = "" },
		"container":      func(p *v1.Pod) { p.Spec.Containers[0].Name = "../x" },
		"init container": func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "a/b"}} },
		"ephemeral container": func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "."}}}
		},
		"volume": func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "../../x"}} },
	} {
		following(t, func(say script, next func() podconfig.Snapshot) {
			bad := bound("bad", "1")
			bad.Spec.Containers = []v1.Container{{Name: "c"}}
			change(bad)
			say.pods(bad, bound("good", "1"))
			first := next()
			if len(first.Pods) != 1 || first.Pods[0].Pod.Name != "good" || first.Incomplete {
				t.Errorf("%s: got %d pods, want the good one alone", what, len(first.Pods))
			}
			if len(first.Problems) != 1 || first.Problems[0].Origin != "https://example" {
				t.Fatalf("%s: got the problems %+v, want one", what, first.Problems)
			}
			time.Sleep(time.Minute)
			say.pods(bad, bound("good", "2"))
			if again := next(); len(again.Problems) != 1 || again.Problems[0] != first.Problems[0] {
				t.Errorf("%s, again: got %+v, want the problem of before", what, again.Problems)
			}
			say.pods(bound("good", "2"))
			if last := next(); len(last.Problems) != 0 {
				t.Errorf("%s, removed: got %+v", what, last.Problems)
			}
		})
	}
}
