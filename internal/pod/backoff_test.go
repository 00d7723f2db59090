package pod_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestBackOffOfAPodsAnnotations(t *testing.T) {
	const initial, longest, success = pod.AnnotationBackOffInitial, pod.AnnotationBackOffMax, pod.AnnotationBackOffSuccess
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        pod.BackOff
		errs        []string
	}{
		{"none", nil, pod.BackOff{}, nil},
		{"all", map[string]string{initial: "500ms", longest: "1m", success: "100ms"},
			pod.BackOff{Initial: 500 * time.Millisecond, Max: time.Minute, Success: 100 * time.Millisecond}, nil},
		{"no unit", map[string]string{initial: "5"}, pod.BackOff{}, []string{initial}},
		{"too short, and the others stand", map[string]string{success: "0s", longest: "1m"}, pod.BackOff{Max: time.Minute}, []string{success}},
		{"negative", map[string]string{initial: "-1s"}, pod.BackOff{}, []string{initial}},
		{"too long", map[string]string{longest: "1000h"}, pod.BackOff{}, []string{longest}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{}
			p.Annotations = tc.annotations
			got, errs := pod.BackOffOf(p)
			if got != tc.want || len(errs) != len(tc.errs) {
				t.Fatalf("got %+v, %v, want %+v and errors about %v", got, errs, tc.want, tc.errs)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), tc.errs[i]) {
					t.Errorf("got %q, want it to name %s", err, tc.errs[i])
				}
			}
		})
	}
}
