package apiserver

import (
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Each update has all pods of the node: those that did not change are not compared
// once more, also when podd has uploaded their statuses since they came.
func TestAChangeOfOnePodComparesNoOther(t *testing.T) {
	s := &Source{log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	all := func(n, version int) (pods []*v1.Pod) {
		for i := range n {
			pods = append(pods, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: strconv.Itoa(version),
					Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}},
				Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Command: []string{"sh"}}}},
				Status: v1.PodStatus{Message: strconv.Itoa(version)},
			})
		}
		return pods
	}
	cost := func(n int) float64 {
		s.applyUpdate(all(n, 1), nil, now)
		pods := all(n, 2) // statuses of podd's own
		s.applyUpdate(pods, nil, now)
		version := 2
		return testing.AllocsPerRun(20, func() {
			version++
			changed := *pods[0]
			changed.ResourceVersion = strconv.Itoa(version)
			pods[0] = &changed
			s.applyUpdate(pods, nil, now)
		})
	}
	few, many := cost(10), cost(200)
	t.Logf("one change costs %.0f allocations among 10 pods, %.0f among 200", few, many)
	if many > few+190 { // the maps; a comparison takes several for each pod
		t.Errorf("one change costs %.0f allocations among 10 pods, %.0f among 200", few, many)
	}
}
