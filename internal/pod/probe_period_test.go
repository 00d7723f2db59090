package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestProbeUntilSuccess(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"100ms": 100 * time.Millisecond, "10ms": 10 * time.Millisecond, "1m": time.Minute,
		"": 0, "100": 0, "9ms": 0, "61s": 0, "-1s": 0, "fast": 0,
	} {
		p := &v1.Pod{}
		p.Annotations = map[string]string{AnnotationProbeUntilSuccess: text}
		got, err := ProbeUntilSuccess(p)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %v (%v), want %v", text, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "such as 100ms") {
			t.Errorf("%q: got %v, want a sentence with an example", text, err)
		}
	}
	if got, err := ProbeUntilSuccess(&v1.Pod{}); got != 0 || err != nil {
		t.Errorf("without the annotation: got %v (%v), want nothing", got, err)
	}
}
