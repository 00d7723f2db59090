package advice

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

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

// TestErrorsOfAnnotationsNameThem: annotationWarnings takes the name from the text.
func TestErrorsOfAnnotationsNameThem(t *testing.T) {
	p := &v1.Pod{}
	p.Annotations = map[string]string{}
	for _, key := range ownAnnotations {
		p.Annotations[key] = "rubbish: x"
	}
	all := annotationWarnings(p)
	if len(all) != len(ownAnnotations) {
		t.Fatalf("got %+v, want a doubt of each", all)
	}
	for i, d := range all {
		if d.path != "metadata.annotations["+ownAnnotations[i]+"]" || !strings.Contains(d.message, "is not a duration") && !strings.Contains(d.message, "is neither true nor false") {
			t.Errorf("got %+v", d)
		}
	}
	p.Annotations = map[string]string{pod.AnnotationStartTime: "x", "example.com/podd": "x"}
	if all := annotationWarnings(p); len(all) != 0 {
		t.Errorf("annotations of others, or written by podd itself: got %+v", all)
	}
}
