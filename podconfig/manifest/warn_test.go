package manifest

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestWarningsLeaveTheirPodAlone: a pod with warnings runs, and its warnings are
// not taken for a reason to keep an old version.
func TestWarningsLeaveTheirPodAlone(t *testing.T) {
	odd := `{apiVersion: v1, kind: Pod, metadata: {name: odd, annotations: {podd/restart-backoff-max: soon}}, spec: {containers: [{name: a, image: i}]}}`
	bad := `{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: a, imagee: i}]}}`
	r := Decode([]byte(odd+"\n---\n"+bad), options("x.yaml"))
	if len(r.Pods) != 1 || len(r.Failed) != 1 || len(r.Problems) != 2 {
		t.Fatalf("got %d pods, %d failures, problems %v", len(r.Pods), len(r.Failed), r.Problems)
	}
	w := r.Problems[0]
	if !w.Warning || w.Pod != "default/odd-node1" || !strings.Contains(w.String(), "x.yaml:1: warning: metadata.annotations[podd/restart-backoff-max]: ") {
		t.Errorf("got %+v", w)
	}
	old := Decode([]byte(strings.ReplaceAll(bad, "imagee", "image")), options("x.yaml")).Content
	MarkKept(r.Problems, Keep(r.Content, old, r.Failed), r.Failed, old)
	if r.Problems[0].KeptRunning || !r.Problems[1].KeptRunning || r.Problems[1].Warning {
		t.Errorf("got %+v, want the broken pod kept and the odd one not", r.Problems)
	}
}

func TestSleepOfAHook(t *testing.T) {
	exec := func(words ...string) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: words}}
	}
	for _, tt := range []struct {
		hook *v1.LifecycleHandler
		want time.Duration
	}{
		{&v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}, 5 * time.Second},
		{exec("sleep", "5"), 5 * time.Second},
		{exec("/bin/sleep", "0.5s"), 500 * time.Millisecond},
		{exec("sh", "-c", "sleep 30; quit"), 30 * time.Second},
		{exec("/bin/bash", "-c", "sleep 30 && quit"), 30 * time.Second},
		{exec("sh", "-c", "quit; sleep 30"), 0},
		{exec("sleep"), 0},
		{exec("sleep", "-5"), 0},
		{exec("sleep", "1e300"), 0},
		{exec("sleep", "NaN"), 0},
		{exec("sleep", "$N"), 0},
		{exec(), 0},
		{&v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}, 0},
	} {
		if got := sleepOf(tt.hook); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.hook, got, tt.want)
		}
	}
}

// TestErrorsOfAnnotationsNameThem: annotationDoubts takes the name from the text.
func TestErrorsOfAnnotationsNameThem(t *testing.T) {
	p := &v1.Pod{}
	p.Annotations = map[string]string{}
	for _, key := range ownAnnotations {
		p.Annotations[key] = "rubbish: x"
	}
	all := annotationDoubts(p)
	if len(all) != len(ownAnnotations) {
		t.Fatalf("got %+v, want a doubt of each", all)
	}
	for i, d := range all {
		if d.path != "metadata.annotations["+ownAnnotations[i]+"]" || !strings.Contains(d.message, "is not a duration") && !strings.Contains(d.message, "is neither true nor false") {
			t.Errorf("got %+v", d)
		}
	}
	p.Annotations = map[string]string{pod.AnnotationStartTime: "x", "example.com/podd": "x"}
	if all := annotationDoubts(p); len(all) != 0 {
		t.Errorf("annotations of others, or written by podd itself: got %+v", all)
	}
}
