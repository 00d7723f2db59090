package plan_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

func objectKey(kind, name string) pod.ObjectKey {
	return pod.ObjectKey{Kind: kind, Namespace: "default", Name: name}
}

var (
	settings = objectKey(pod.KindConfigMap, "settings")
	password = objectKey(pod.KindSecret, "password")
	pullKeys = objectKey(pod.KindSecret, "pull")
)

// followsObjects is a pod that is restarted when settings or password change.
func followsObjects(p *v1.Pod) {
	p.Annotations = map[string]string{pod.AnnotationRestartOnChange: "true"}
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	p.Spec.Volumes = []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password"}}}}
	p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}
}

// changing brings a pod to where everything runs, with settings of content 1.
func changing(t *testing.T, opts ...func(*v1.Pod)) *world {
	t.Helper()
	p := resetPod(append([]func(*v1.Pod){followsObjects}, opts...)...)
	if !plan.NeedsContents(p) {
		t.Fatal("its contents are not asked for")
	}
	w := newWorld(p)
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 1}
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if !w.running("web") || !w.running("side") || !w.running("mesh") {
		t.Fatalf("not started: %+v", w.in.Observed)
	}
	w.in.Now = w.in.Now.Add(time.Minute)
	return w
}

// TestAChangeRestartsAllContainersInOrder: with their grace period and hooks, then
// from the init containers on, in the same sandbox, whatever the restart policy is
// (kubernetes/kubernetes#30189).
func TestAChangeRestartsAllContainersInOrder(t *testing.T) {
	w := changing(t, with("side", preStop), graceOf(20))
	sandbox := w.in.Observed.Sandboxes[0].ID
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	step := w.act(t)
	if !step.Idle() || step.WakeAt.Sub(w.in.Now) != time.Second || step.ChangedObjects != nil {
		t.Fatalf("got %s, want a wait of a second", describe(step))
	}
	w.in.Now = step.WakeAt
	step = w.act(t)
	if len(step.ChangedObjects) != 1 || step.ChangedObjects[0] != settings {
		t.Errorf("got %v, want settings", step.ChangedObjects)
	}
	for _, st := range step.Stop {
		if st.Grace != 20*time.Second || (st.PreStop != nil) != (st.Name == "side") {
			t.Errorf("got %+v; want the pod's grace period, and the hook of side", st)
		}
	}
	if got, want := w.named(step), "stop side, stop web, stop mesh after side web"; got != want || !step.RestartingAll {
		t.Errorf("got %s, want %s", got, want)
	}
	step = w.act(t)
	if len(step.RemoveContainers) != 4 || !step.KeepLogs || !step.RestartingAll || step.ChangedObjects != nil {
		t.Errorf("got %s, want all removed, but their logs", describe(step))
	}
	if got, want := w.steps(t), "create a-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.exits("a", 0)
	if got, want := w.steps(t), "create mesh-1; create web-1, create side-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := w.in.Observed.Sandboxes; len(got) != 1 || got[0].ID != sandbox {
		t.Errorf("got sandboxes %v, want %s alone", got, sandbox)
	}
	if step = w.settle(t); step.RestartingAll || w.latest("web").RestartCount != 1 || w.slept > time.Minute {
		t.Errorf("got %s, want rest", describe(step))
	}
}

func TestWhichChangesRestartContainers(t *testing.T) {
	type contents = map[pod.ObjectKey]uint64
	for _, tc := range []struct {
		what string
		opts []func(*v1.Pod)
		then []contents // a minute each
		want int32
	}{
		{"the same content", nil, []contents{{settings: 1}}, 0},
		{"another content", nil, []contents{{settings: 2}}, 1},
		{"one after the other", nil, []contents{{settings: 2}, {settings: 3}}, 2},
		{"one that comes", nil, []contents{{settings: 1, password: 1}}, 0},
		{"one that came and changes, of a volume", nil, []contents{{settings: 1, password: 1}, {settings: 1, password: 2}}, 1},
		{"one that goes", nil, []contents{{}}, 0},
		{"one that goes and comes back as it was", nil, []contents{{}, {settings: 1}}, 0},
		{"one that goes and comes back changed", nil, []contents{{}, {settings: 2}}, 1},
		{"a secret of pulls alone", nil, []contents{{settings: 1, pullKeys: 1}, {settings: 1, pullKeys: 2}}, 0},
		{"with the annotation false", []func(*v1.Pod){func(p *v1.Pod) { p.Annotations[pod.AnnotationRestartOnChange] = "false" }}, []contents{{settings: 2}}, 0},
		{"with a bad annotation", []func(*v1.Pod){func(p *v1.Pod) { p.Annotations[pod.AnnotationRestartOnChange] = "yes" }}, []contents{{settings: 2}}, 0},
	} {
		w := changing(t, tc.opts...)
		for _, next := range tc.then {
			w.in.Contents = next
			w.settle(t)
			if a := w.latest("a"); a.State == pod.ContainerRunning {
				w.exits("a", 0)
				w.settle(t)
			}
			w.in.Now = w.in.Now.Add(time.Minute)
		}
		for _, name := range []string{"a", "mesh", "web", "side"} {
			if got := w.latest(name).RestartCount; got != tc.want {
				t.Errorf("%s: %s was restarted %d times, want %d", tc.what, name, got, tc.want)
			}
		}
	}
}

// TestChangesThatFollowEachOtherAreOneRestart, which objects that never rest do not
// put off for ever.
func TestChangesThatFollowEachOtherAreOneRestart(t *testing.T) {
	w := changing(t)
	began := w.in.Now
	for n := uint64(2); ; n++ {
		w.in.Contents = map[pod.ObjectKey]uint64{settings: n, password: n}
		step := plan.Next(w.in)
		if len(step.ChangedObjects) > 0 {
			if took := w.in.Now.Sub(began); took != 10*time.Second || fmt.Sprint(step.ChangedObjects) != fmt.Sprint([]pod.ObjectKey{settings, password}) {
				t.Errorf("begun after %v for %v, want after 10 s for both", took, step.ChangedObjects)
			}
			return
		}
		if !step.Idle() || w.in.Now.Sub(began) > time.Minute {
			t.Fatalf("after %v: got %s", w.in.Now.Sub(began), describe(step))
		}
		if n > 2 && step.Memory.AwaitsObjects(w.in.Granted.Pod) {
			t.Fatal("each change is still to be looked at: the time of the restart tells")
		}
		w.in.Memory = step.Memory
		w.in.Now = w.in.Now.Add(500 * time.Millisecond)
	}
}

func TestAChangeWhileContainersEndIsPartOfTheirRestart(t *testing.T) {
	w := changing(t)
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	w.in.Now = w.act(t).WakeAt
	w.act(t)
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 3}
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if got := w.latest("web").RestartCount; got != 1 {
		t.Errorf("restarted %d times, want once", got)
	}
}

func TestAnEphemeralContainerKeepsRunningWhileOthersAreRestarted(t *testing.T) {
	w := changing(t, ephemerals("looker"))
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if c := w.latest("looker"); !w.running("looker") || c.RestartCount != 0 || w.latest("web").RestartCount != 1 {
		t.Errorf("got %+v, want it left alone", c)
	}
}

func TestAChangeBeforeTheFirstStartRestartsNothing(t *testing.T) {
	w := newWorld(resetPod(followsObjects))
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 1}
	w.act(t) // the sandbox
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if got := w.latest("web").RestartCount; got != 0 || w.slept > 0 {
		t.Errorf("restarted %d times, waited %v", got, w.slept)
	}
}

func TestAChangeStartsACompletedPodNotAgain(t *testing.T) {
	w := changing(t)
	w.exits("web", 0)
	w.exits("side", 0)
	w.settle(t)
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	if step := w.settle(t); !step.Finished || step.ChangedObjects != nil || len(step.Start) > 0 {
		t.Errorf("got %s", describe(step))
	}
}

// TestAChangeEndsAWaitAfterACrash, since it may be what was waited for.
func TestAChangeEndsAWaitAfterACrash(t *testing.T) {
	p := aPod(followsObjects)
	w := newWorld(p)
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 1}
	w.settle(t)
	for range 3 {
		w.in.Now = w.in.Now.Add(time.Second)
		w.exits("web", 1)
		if w.act(t); w.running("web") {
			continue
		}
		break
	}
	if w.running("web") {
		t.Fatal("it does not wait")
	}
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	w.in.Now = w.in.Now.Add(time.Second)
	w.act(t)
	w.in.Now = w.in.Now.Add(time.Second)
	if got := w.steps(t); !w.running("web") {
		t.Errorf("got %s, want web running", got)
	}
}

// A podd that dies while containers end for a change goes on by the restart policy.
func TestAPoddThatDiesDuringARestartForAChangeRestartsThem(t *testing.T) {
	for after := range 4 {
		w := changing(t, policy(v1.RestartPolicyAlways))
		w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
		w.in.Now = w.act(t).WakeAt
		for range after {
			w.act(t)
		}
		w.crash()
		w.settle(t)
		if after > 1 {
			w.exits("a", 0)
			w.settle(t)
		}
		for _, name := range []string{"side", "mesh"} {
			if !w.running(name) {
				t.Errorf("a crash after %d steps: %s does not run", after, name)
			}
		}
	}
}

// TestAChangeWhileNoPoddLookedIsAChangeLikeAnyOther, where the containers say what
// they were made of.
func TestAChangeWhileNoPoddLookedIsAChangeLikeAnyOther(t *testing.T) {
	for _, tc := range []struct {
		what  string
		made  string // the epoch that containers were made in
		now   string
		then  map[pod.ObjectKey]uint64
		wants int32
	}{
		{"the same content", "e", "e", map[pod.ObjectKey]uint64{settings: 1}, 0},
		{"another content", "e", "e", map[pod.ObjectKey]uint64{settings: 2}, 1},
		{"one that came", "e", "e", map[pod.ObjectKey]uint64{settings: 1, password: 1}, 0},
		{"one that went", "e", "e", map[pod.ObjectKey]uint64{}, 0},
		{"another epoch", "e", "f", map[pod.ObjectKey]uint64{settings: 2}, 0},
		{"no epoch", "", "", map[pod.ObjectKey]uint64{settings: 2}, 0},
	} {
		w := changing(t, func(*v1.Pod) {})
		for i := range w.in.Observed.Containers {
			w.in.Observed.Containers[i].ContentHashes.Epoch = tc.made
		}
		w.in.Epoch, w.in.Contents = tc.now, tc.then
		w.crash()
		w.settle(t)
		if a := w.latest("a"); a.State == pod.ContainerRunning {
			w.exits("a", 0)
			w.settle(t)
		}
		if got := w.latest("web").RestartCount; got != tc.wants {
			t.Errorf("%s: restarted %d times, want %d", tc.what, got, tc.wants)
		}
	}
}

// TestAPoddThatDiesBeforeItRestartedForAChangeFindsItAgain: one container has the new
// content, as it crashed meanwhile, the others have the old.
func TestAPoddThatDiesBeforeItRestartedForAChangeFindsItAgain(t *testing.T) {
	w := changing(t, policy(v1.RestartPolicyAlways))
	w.in.Epoch = "e"
	for i := range w.in.Observed.Containers {
		w.in.Observed.Containers[i].ContentHashes = pod.ContentHashes{Epoch: "e", ByObject: map[pod.ObjectKey]uint64{settings: 1}}
	}
	w.latest("web").ContentHashes.ByObject = map[pod.ObjectKey]uint64{settings: 2}
	w.in.Contents = map[pod.ObjectKey]uint64{settings: 2}
	w.crash()
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if got := w.latest("side").RestartCount; got != 1 {
		t.Errorf("side was restarted %d times, want once", got)
	}
	w.crash()
	if step := w.settle(t); step.ChangedObjects != nil || w.latest("side").RestartCount != 1 {
		t.Errorf("got %s: restarted again for what is in them", describe(step))
	}
}
