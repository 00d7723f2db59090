package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

// TestAChangedObjectForgivesWhatCouldNotBeConfigured, and nothing else: not an
// image, not a start that was refused, not a crash.
func TestAChangedObjectForgivesWhatCouldNotBeConfigured(t *testing.T) {
	p := aPod(containers("env", "image", "web"))
	failed := func(m plan.Memory, name, reason string) plan.Memory {
		for range 5 { // the next try is in 10 s
			m = m.Failed(name, "", pod.Waiting{Reason: reason, Message: "why"}, noon)
		}
		return m
	}
	m := failed(failed(plan.Memory{}, "env", pod.ReasonCreateContainerConfigError), "image", pod.ReasonCreateContainerError)
	in := input(p, observed(ready(0), web("exited 1", 0, 1)))
	in.Memory = m
	in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 10 * time.Second, Restarted: noon.Add(-2 * time.Second)}}
	before := plan.Next(in)
	if got := describe(before); got != "wake 9s" {
		t.Fatalf("before: got %s, want nothing but a time", got)
	}
	in.Memory = in.Memory.ObjectsChanged()
	after := plan.Next(in)
	if got, want := describe(after), "create env-0, wake 9s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := waits(after), "env=CreateContainerConfigError image=CreateContainerError web=CrashLoopBackOff"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if f := in.Memory.Failed("env", "", pod.Waiting{Reason: "again"}, noon).Failures["env"]; f.NotBefore.Sub(noon) != time.Second {
		t.Errorf("the next failure waits %v, want a second, as the first", f.NotBefore.Sub(noon))
	}
	if f := m.Failures["env"]; f.NotBefore.IsZero() {
		t.Error("the memory that was given has changed")
	}
}

func TestWhichPodsAwaitTheirObjects(t *testing.T) {
	secrets := func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "keys"}} }
	fails := func(reason string) plan.Memory {
		return plan.Memory{}.Failed("web", "", pod.Waiting{Reason: reason}, noon)
	}
	for _, tc := range []struct {
		what string
		m    plan.Memory
		p    *v1.Pod
		want bool
	}{
		{"nothing failed", plan.Memory{}, aPod(secrets), false},
		{"a configuration", fails(pod.ReasonCreateContainerConfigError), aPod(), true},
		{"an image", fails(pod.ReasonImagePullBackOff), aPod(), false},
		{"an image that is pulled with secrets", fails(pod.ReasonImagePullBackOff), aPod(secrets), true},
	} {
		if got := tc.m.AwaitsObjects(tc.p); got != tc.want {
			t.Errorf("%s: got %v", tc.what, got)
		}
	}
}

// TestPullsAreTriedAgainWithAnotherSecret of those that they are made with.
func TestPullsAreTriedAgainWithAnotherSecret(t *testing.T) {
	keys, other, settings := objectKey(pod.KindSecret, "keys"), objectKey(pod.KindSecret, "other"), objectKey(pod.KindConfigMap, "keys")
	p := aPod(func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "keys"}} })
	if !plan.NeedsContents(p) || plan.NeedsContents(aPod()) {
		t.Error("the contents are those that pulls depend on")
	}
	in := input(p, observed(ready(0), web("running", 0, 0)))
	for i, step := range []struct {
		contents map[pod.ObjectKey]uint64
		want     bool
	}{
		{map[pod.ObjectKey]uint64{other: 1}, false},
		{map[pod.ObjectKey]uint64{other: 2, settings: 1}, false},
		{map[pod.ObjectKey]uint64{keys: 1, other: 2, settings: 1}, true},
		{map[pod.ObjectKey]uint64{keys: 1}, false},
		{map[pod.ObjectKey]uint64{}, false},
		{map[pod.ObjectKey]uint64{keys: 1}, false},
		{map[pod.ObjectKey]uint64{keys: 2}, true},
	} {
		in.Contents = step.contents
		got := plan.Next(in)
		if got.RetryPulls != step.want {
			t.Errorf("step %d: got %v, want %v", i, got.RetryPulls, step.want)
		}
		in.Memory = got.Memory
	}
	empty := input(p, observed(ready(0), web("running", 0, 0)))
	empty.Contents = map[pod.ObjectKey]uint64{}
	empty.Memory = plan.Next(empty).Memory
	empty.Contents = map[pod.ObjectKey]uint64{keys: 1}
	if !plan.Next(empty).RetryPulls {
		t.Error("a Secret that came first: no other try")
	}
}
