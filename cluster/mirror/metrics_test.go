package mirror

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMirrorPodsAreCounted: of all pods of the node in the apiserver, those that stand for a
// static pod.
func TestMirrorPodsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(Config{Metrics: reg})
	expect := func(want float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "kubelet_mirror_pods" || families[0].Metric[0].GetGauge().GetValue() != want {
			t.Errorf("got %v (%v), want %v", families, err, want)
		}
	}
	expect(0)
	m.ObservePods([]*v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "bound"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "hash"}}},
	})
	expect(1)
	m.ObservePods(nil)
	expect(0)
}
