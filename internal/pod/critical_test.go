package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func TestCriticalPods(t *testing.T) {
	aPod := func(key, value string, priority int32) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Priority: &priority}}
		if key != "" {
			p.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{key: value}}
		}
		return p
	}
	for name, tc := range map[string]struct {
		pod              *v1.Pod
		static, critical bool
	}{
		"a file's":             {aPod(pod.AnnotationSource, "file", 0), true, true},
		"a URL's":              {aPod(pod.AnnotationSource, "http", 0), true, true},
		"an apiserver's":       {aPod(pod.AnnotationSource, "api", 0), false, false},
		"of nobody knows whom": {aPod("", "", 0), false, false},
		"a mirror":             {aPod(v1.MirrorPodAnnotationKey, "hash", 0), false, true},
		"below the system's":   {aPod("", "", 1_999_999_999), false, false},
		"cluster critical":     {aPod("", "", 2_000_000_000), false, true},
		"without a priority":   {&v1.Pod{}, false, false},
	} {
		if got := pod.IsStatic(tc.pod); got != tc.static {
			t.Errorf("%s: got static %v, want %v", name, got, tc.static)
		}
		if got := pod.IsCritical(tc.pod); got != tc.critical {
			t.Errorf("%s: got critical %v, want %v", name, got, tc.critical)
		}
	}
}
